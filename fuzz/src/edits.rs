//! Small scripts that change valid messages, so that inputs are short and reach what lies behind many right bytes.
//!
//! A script is a list of steps of a few bytes: what is done, to which message, where, with what. The empty script changes nothing.

/// Bytes that a script may add to a message, and to all messages by repeating them.
const MOST_ADDED: usize = 1 << 16;
/// Most messages.
const MOST_MESSAGES: usize = 64;

/// Bytes read off the front of an input; none are left at its end.
pub struct Cursor<'a>(pub &'a [u8]);

impl<'a> Cursor<'a> {
    pub fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }
    fn wide(&mut self) -> Option<usize> {
        Some(usize::from(self.byte()?) << 8 | usize::from(self.byte()?))
    }
    /// A place within `length`: two bytes, the top bit of the first says whether they count from the end.
    fn place(&mut self, length: usize) -> Option<usize> {
        let wide = self.wide()?;
        let at = (wide & 0x7fff).min(length);
        Some(if wide >> 15 == 1 { length - at } else { at })
    }
    pub fn bytes(&mut self, most: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        head
    }
}

const WORDS: [u64; 12] = [
    0,
    1,
    2,
    0x7f,
    0xff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    1 << 49,
    (1 << 50) - 1,
    i64::MAX as u64,
    u64::MAX,
];

/// Changes messages step by step until the script ends.
pub fn apply(script: &[u8], messages: &mut Vec<Vec<u8>>) {
    let mut script = Cursor(script);
    let most = messages.iter().map(Vec::len).sum::<usize>() + MOST_ADDED;
    while step(&mut script, messages, most).is_some() {}
}

/// One step; the bytes of all messages stay below `most`.
fn step(script: &mut Cursor<'_>, messages: &mut Vec<Vec<u8>>, most: usize) -> Option<()> {
    let what = script.byte()?;
    let number = usize::from(script.byte()?);
    if messages.is_empty() {
        messages.push(Vec::new());
    }
    let number = number % messages.len();
    let room = most.saturating_sub(messages.iter().map(Vec::len).sum());
    let message = &mut messages[number];
    match what % 10 {
        0 => {
            let at = script.place(message.len().saturating_sub(1))?;
            let value = script.byte()?;
            if let Some(b) = message.get_mut(at) {
                *b = value;
            }
        }
        1 => {
            let at = script.place(message.len())?;
            let word = WORDS[usize::from(script.byte()?) % WORDS.len()].to_le_bytes();
            message[at..].iter_mut().zip(word).for_each(|(b, w)| *b = w);
        }
        2 => {
            let at = script.place(message.len())?;
            let count = usize::from(script.byte()?) % 33;
            message[at..].iter_mut().zip(script.bytes(count)).for_each(|(b, w)| *b = *w);
        }
        3 => {
            let at = script.place(message.len())?;
            message.truncate(at);
        }
        4 => {
            let count = script.wide()?;
            let value = script.byte()?;
            message.resize(message.len() + count.min(room), value);
        }
        5 => drop(messages.remove(number)),
        6 => {
            if messages.len() < MOST_MESSAGES && messages[number].len() <= room {
                messages.insert(number, messages[number].clone());
            }
        }
        7 => {
            let other = usize::from(script.byte()?) % messages.len();
            messages.swap(number, other);
        }
        8 => {
            let count = script.wide()?;
            *message = script.bytes(count).to_vec();
        }
        _ => {
            let at = script.place(message.len())?;
            let value = script.byte()?;
            message[at..].fill(value);
        }
    }
    Some(())
}

/// Scripts that try every step once on the first messages: the seeds of targets that take scripts.
pub fn seeds(messages: usize) -> Vec<Vec<u8>> {
    let mut out = vec![Vec::new()];
    for number in 0..messages.min(12) as u8 {
        out.push(vec![0, number, 0, 3, 0xff]);
        out.push(vec![0, number, 0x80, 1, 0xff]);
        out.push(vec![1, number, 0, 16, 11]);
        out.push(vec![2, number, 0, 20, 4, 1, 2, 3, 4]);
        out.push(vec![3, number, 0x80, 1]);
        out.push(vec![4, number, 0, 1, 0]);
        out.push(vec![5, number]);
        out.push(vec![6, number]);
        out.push(vec![7, number, number + 1]);
        out.push(vec![8, number, 0, 4, 8, 1, 18, 0]);
        out.push(vec![9, number, 0, 16, 0xff]);
    }
    out
}
