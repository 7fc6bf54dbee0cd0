//! The ledger of tests.

use super::Kind;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::ThreadId;

/// Words of one record of [`vector`].
const RUN: usize = 32;

type Id = u128;

/// Hashed with every value, so that identities of one process say nothing elsewhere.
fn salt() -> &'static [u8; 32] {
    static SALT: OnceLock<[u8; 32]> = OnceLock::new();
    SALT.get_or_init(|| {
        let mut salt = [0; 32];
        assert!(getrandom::fill(&mut salt).is_ok(), "the ledger's salt needs randomness");
        salt
    })
}

fn digest(parts: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Id {
    let mut h = Sha256::new();
    h.update(salt());
    parts.into_iter().for_each(|p| h.update(p));
    let mut id = [0; 16];
    id.copy_from_slice(&h.finalize()[..16]);
    Id::from_le_bytes(id)
}

/// The digest of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag(Id);

impl Tag {
    /// The tag of all words of a slice.
    #[must_use]
    pub fn words(v: &[u64]) -> Self {
        Self(digest(v.iter().map(|w| w.to_le_bytes())))
    }

    /// Of the lowest byte of every word: equal for one polynomial modulo two powers of two.
    #[must_use]
    pub fn low(v: &[u64]) -> Self {
        Self(digest(v.iter().map(|w| [*w as u8])))
    }

    /// The tag of small coefficients, such as secrets and errors.
    #[must_use]
    pub fn small(v: &[i8]) -> Self {
        Self(digest(v.iter().map(|w| w.to_le_bytes())))
    }

    /// The tag of signed integers of a slice.
    #[must_use]
    pub fn integers(v: &[i64]) -> Self {
        Self(digest(v.iter().map(|w| w.to_le_bytes())))
    }

    /// The tag of all bytes of a slice.
    #[must_use]
    pub fn bytes(v: &[u8]) -> Self {
        Self(digest([v]))
    }

    /// The tag of a number, such as a counter.
    #[must_use]
    pub fn number(v: u64) -> Self {
        Self(v.into())
    }
}

/// Which keyed generator this is.
#[derive(Clone, Debug)]
pub struct Stream {
    key: Id,
    kind: Option<Kind>,
}

impl Stream {
    /// The stream of words that a generator of this kind makes of `seed`.
    #[must_use]
    pub fn new(kind: Kind, seed: &[u8]) -> Self {
        Self { key: digest([seed]), kind: Some(kind) }
    }

    /// The same generator, its use recorded under another kind, or (`None`) not at all.
    pub fn rename(&mut self, kind: Option<Kind>) {
        self.kind = kind;
    }

    /// Counters `first..first + count` are used up.
    #[track_caller]
    pub fn take(&self, first: u128, count: u64) {
        if let (Some(kind), true) = (self.kind, count > 0) {
            let at = Location::caller();
            with_book(|b| b.shelf(kind).range(self.key, first, first + u128::from(count), at));
        }
    }
}

/// The identity made of these tags is used.
#[track_caller]
pub fn once(kind: Kind, tags: &[Tag]) {
    let at = Location::caller();
    with_book(|b| b.shelf(kind).once(joined(tags), kind, at));
}

/// The identity made of the tags is used for this content.
#[track_caller]
pub fn same(kind: Kind, tags: &[Tag], content: Tag) {
    let at = Location::caller();
    with_book(|b| b.shelf(kind).same(joined(tags), content.0, kind, at));
}

fn joined(tags: &[Tag]) -> Id {
    digest(tags.iter().map(|t| t.0.to_le_bytes()))
}

/// Every word is used: 64 random bits each.
#[track_caller]
pub fn words(kind: Kind, values: &mut [u64]) {
    let at = Location::caller();
    with_book(|b| {
        b.replace(kind, None, values, |p| &mut p.words);
        values.iter().for_each(|w| b.shelf(kind).once(digest([w.to_le_bytes()]), kind, at));
    });
}

/// Every block is used: about 128 random bits each. A failure that is planted here is planted in every thread by itself, because
/// both parties of an oblivious transfer must repeat the same draw.
#[track_caller]
pub fn blocks(kind: Kind, values: &mut [u128]) {
    let at = Location::caller();
    with_book(|b| {
        b.replace(kind, Some(std::thread::current().id()), values, |p| &mut p.blocks);
        values.iter().for_each(|w| b.shelf(kind).once(digest([w.to_le_bytes()]), kind, at));
    });
}

/// The same of blocks that are used with a tweak XORed to each.
#[track_caller]
pub fn tweaked(kind: Kind, values: &mut [u128], tweak: u128) {
    values.iter_mut().for_each(|v| *v ^= tweak);
    blocks(kind, values);
    values.iter_mut().for_each(|v| *v ^= tweak);
}

/// The bytes are used as one value.
#[track_caller]
pub fn bytes(kind: Kind, values: &mut [u8]) {
    let at = Location::caller();
    with_book(|b| {
        b.replace(kind, None, values, |p| &mut p.bytes);
        b.shelf(kind).once(digest([&*values]), kind, at);
    });
}

/// Runs of words are used: fewer records than [`words`].
#[track_caller]
pub fn vector(kind: Kind, values: &mut [u64]) {
    let at = Location::caller();
    with_book(|b| {
        b.replace(kind, None, values, |p| &mut p.words);
        values.chunks(RUN).for_each(|run| b.shelf(kind).once(Tag::words(run).0, kind, at));
    });
}

/// The small polynomial is used as one value.
#[track_caller]
pub fn small(kind: Kind, values: &mut [i8]) {
    let at = Location::caller();
    with_book(|b| {
        b.replace(kind, None, values, |p| &mut p.small);
        b.shelf(kind).once(Tag::small(values).0, kind, at);
    });
}

/// A value that was used twice, and where it was used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it was used for.
    pub kind: Kind,
    /// What is wrong, and where in the program the second use is.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.0, self.what)
    }
}

type Site = &'static Location<'static>;
type Range = (u128, u128, Site);

/// All that was recorded of one kind.
#[derive(Default)]
struct Shelf {
    uses: u64,
    seen: HashSet<Id>,
    contents: HashMap<Id, Id>,
    ranges: HashMap<Id, Vec<Range>>,
    findings: Vec<Finding>,
}

impl Shelf {
    fn found(&mut self, kind: Kind, what: String) {
        // One bug repeats what it repeats thousands of times.
        if self.findings.len() < 100 {
            self.findings.push(Finding { kind, what });
        }
    }

    fn once(&mut self, id: Id, kind: Kind, at: Site) {
        self.uses += 1;
        if !self.seen.insert(id) {
            self.found(kind, format!("identity {id:032x} is used again at {at}"));
        }
    }

    fn same(&mut self, id: Id, content: Id, kind: Kind, at: Site) {
        self.uses += 1;
        if *self.contents.entry(id).or_insert(content) != content {
            self.found(kind, format!("identity {id:032x} is used for another content at {at}"));
        }
    }

    /// A range that goes on where the last one of its key ended makes that one longer.
    fn range(&mut self, key: Id, first: u128, end: u128, at: Site) {
        self.uses += 1;
        let ranges = self.ranges.entry(key).or_default();
        match ranges.last_mut() {
            Some(last) if last.1 == first => last.1 = end,
            _ => ranges.push((first, end, at)),
        }
    }

    fn overlaps(&mut self, kind: Kind) {
        for (key, mut ranges) in std::mem::take(&mut self.ranges) {
            ranges.sort_by_key(|r| (r.0, r.1));
            for pair in ranges.windows(2) {
                let ((a, end, _), (b, other, at)) = (pair[0], pair[1]);
                if b < end {
                    let what =
                        format!("counters {b}..{other} of key {key:032x}, used at {at}, overlap {a}..{end}");
                    self.found(kind, what);
                }
            }
        }
    }
}

/// The last value of a kind, for planted failures.
#[derive(Default)]
struct Previous {
    count: usize,
    words: Vec<u64>,
    blocks: Vec<u128>,
    bytes: Vec<u8>,
    small: Vec<i8>,
}

#[derive(Default)]
struct Book {
    shelves: BTreeMap<Kind, Shelf>,
    planted: Vec<(Kind, std::ops::Range<usize>)>,
    previous: HashMap<(Kind, Option<ThreadId>), Previous>,
}

impl Book {
    fn shelf(&mut self, kind: Kind) -> &mut Shelf {
        self.shelves.entry(kind).or_default()
    }

    /// The planted failure: a value of a planted number is the one before it again, as far as that goes.
    fn replace<T: Copy>(
        &mut self,
        kind: Kind,
        thread: Option<ThreadId>,
        values: &mut [T],
        last: fn(&mut Previous) -> &mut Vec<T>,
    ) {
        let Some((_, numbers)) = self.planted.iter().find(|(k, _)| *k == kind) else { return };
        let previous = self.previous.entry((kind, thread)).or_default();
        previous.count += 1;
        if numbers.contains(&(previous.count - 1)) {
            values.iter_mut().zip(last(previous).iter()).for_each(|(v, p)| *v = *p);
        }
        *last(previous) = values.to_vec();
    }
}

static ACTIVE: AtomicBool = AtomicBool::new(false);
static BOOK: Mutex<Option<Book>> = Mutex::new(None);
static TURN: RwLock<()> = RwLock::new(());

fn with_book(f: impl FnOnce(&mut Book)) {
    if ACTIVE.load(Ordering::Acquire) {
        if let Some(book) = BOOK.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            f(book);
        }
    }
}

/// A run that is recorded, from [`Self::start`] to [`Self::finish`]. The ledger is the process's: recordings wait for each other, so
/// that tests that run side by side do not mix, and a program with recordings runs nothing else beside them.
pub struct Recording {
    _turn: RwLockWriteGuard<'static, ()>,
}

/// Runs of which nothing is recorded, side by side, until this is dropped.
pub struct Unrecorded {
    _turn: RwLockReadGuard<'static, ()>,
}

impl Unrecorded {
    /// Waits until no recording is under way.
    #[must_use]
    pub fn start() -> Self {
        Self { _turn: TURN.read().unwrap_or_else(PoisonError::into_inner) }
    }
}

/// What a [`Recording`] saw: uses by kind, and what was used twice.
pub struct Report {
    /// Records by kind.
    pub uses: BTreeMap<Kind, u64>,
    /// What was used twice.
    pub findings: Vec<Finding>,
}

impl Recording {
    /// Waits for its turn, then begins with an empty ledger.
    #[must_use]
    pub fn start() -> Self {
        let turn = TURN.write().unwrap_or_else(PoisonError::into_inner);
        *BOOK.lock().unwrap_or_else(PoisonError::into_inner) = Some(Book::default());
        ACTIVE.store(true, Ordering::Release);
        Self { _turn: turn }
    }

    /// Plants a failure: the values of `kind` with these numbers (from 0) become the value before them, in what the program goes on
    /// with, too.
    #[must_use]
    pub fn plant(self, kind: Kind, numbers: std::ops::Range<usize>) -> Self {
        with_book(|b| b.planted.push((kind, numbers)));
        self
    }

    /// Ends the recording and reports what it saw.
    #[must_use]
    pub fn finish(self) -> Report {
        ACTIVE.store(false, Ordering::Release);
        let book = BOOK.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default();
        let mut report = Report { uses: BTreeMap::new(), findings: Vec::new() };
        for (kind, mut shelf) in book.shelves {
            shelf.overlaps(kind);
            report.uses.insert(kind, shelf.uses);
            report.findings.append(&mut shelf.findings);
        }
        report
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        ACTIVE.store(false, Ordering::Release);
    }
}
