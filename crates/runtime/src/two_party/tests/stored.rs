//! Set-ups kept by the client: none sent twice, interruptions, damage, other models, servers started anew, clients that lie.

use super::coefficients::{classifier, with_methods};
use super::networks::verify;
use super::*;
use crate::error::ProtocolError;
use hushnet_mpc::MpcError;
use std::path::{Path, PathBuf};

/// A folder that is removed at the end.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("hushnet-setups-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }

    fn files(&self) -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> =
            std::fs::read_dir(&self.0).unwrap().map(|e| e.unwrap().path()).collect();
        found.sort();
        found
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn network(seed: u64) -> Net {
    let mut net = classifier(seed);
    with_methods(&mut net, &["rotation-free"]);
    net
}

/// Other weights behind the same public plan: all of them negated.
fn negated(mut net: Net) -> Net {
    for (name, (weights, _)) in &mut net.weights {
        weights.iter_mut().for_each(|w| *w = -*w);
        let (_, _, data) = net.files.get_mut(name).unwrap();
        data.iter_mut().for_each(|b| *b = b.cast_signed().wrapping_neg().cast_unsigned());
    }
    net
}

/// Dense layers whose set-ups have many polynomials.
fn wide(seed: u64) -> Net {
    let mut net = Net::new(26, seed);
    let x = net.input("image", &[4, 20, 16], 5, 31);
    let d = net.dense(x, 40, 4);
    let t = net.truncate(d, 7, "any", false);
    let d = net.dense(t, 300, 3);
    let t = net.truncate(d, 3, "any", false);
    net.open("logits", t);
    with_methods(&mut net, &["rotation-free"]);
    net
}

fn model_of(net: &Net) -> TwoPartyModel {
    TwoPartyModel::new(&plan_of(net).unwrap(), Compute::default()).unwrap()
}

fn options(folder: &Path) -> TwoPartyOptions {
    TwoPartyOptions { setups: Some(folder.to_owned()), ..TwoPartyOptions::default() }
}

/// One session, its results and its traffic checked; bytes of set-ups that were sent.
fn session(net: &mut Net, model: &TwoPartyModel, folder: Option<&Path>) -> usize {
    let inputs = random_inputs(net, model.plan(), 1);
    let options = folder.map(options).unwrap_or_default();
    let result = run_on(model, &inputs, 1, options).unwrap();
    verify(net, model.plan(), &inputs, 1, &result);
    let layers = Layers::new(model.plan()).unwrap();
    let [_, _, polys] = layers.coefficients.setup_lens();
    let whole = super::super::predict(model.plan(), &layers, cost_kind(model), 1).setup;
    for trace in [&result.client, &result.server] {
        assert_eq!(trace.setup.bytes_down, trace.setup.predicted.bytes_down);
        assert_eq!(trace.setup.bytes_up, trace.setup.predicted.bytes_up);
        assert_eq!(trace.setup.bytes_up, whole.bytes_up);
    }
    polys - (whole.bytes_down - result.client.setup.bytes_down) as usize
}

fn cost_kind(model: &TwoPartyModel) -> hushnet_mpc::OtKind {
    super::super::cost::choose(model.plan(), &Layers::new(model.plan()).unwrap(), 1)
}

/// Bytes of all set-ups, and of each stage's stored form.
fn whole(model: &TwoPartyModel) -> usize {
    Layers::new(model.plan()).unwrap().coefficients.setup_lens()[2]
}

#[test]
fn a_set_up_is_sent_once_for_as_long_as_the_server_runs() {
    let folder = Temporary::new("once");
    let (mut net, mut other) = (network(31), negated(network(31)));
    let model = model_of(&net);
    let all = whole(&model);
    assert!(all > 0);
    // Without a folder: every time, and always the same bytes.
    assert_eq!(session(&mut net, &model, None), all);
    assert_eq!(session(&mut net, &model, Some(&folder.0)), all);
    assert_eq!(session(&mut net, &model, Some(&folder.0)), 0);
    assert_eq!(session(&mut net, &model, Some(&folder.0)), 0);
    assert_eq!(folder.files().len(), 2);
    // The same plan served anew draws another set-up, which replaces the first.
    let again = model_of(&net);
    assert_eq!(session(&mut net, &again, Some(&folder.0)), all);
    assert_eq!(session(&mut net, &again, Some(&folder.0)), 0);
    assert_eq!(session(&mut net, &model, Some(&folder.0)), all);
    // Another model of the same public plan.
    let foreign = model_of(&other);
    let digest = super::super::handshake::plan_digest;
    assert!(digest(foreign.plan()).unwrap() == digest(model.plan()).unwrap());
    assert_eq!(session(&mut other, &foreign, Some(&folder.0)), all);
    assert_eq!(folder.files().len(), 2);
    assert_eq!(session(&mut other, &foreign, Some(&folder.0)), 0);
}

#[test]
fn set_ups_are_the_same_bytes_for_every_session() {
    let mut net = network(33);
    let model = model_of(&net);
    let inputs = random_inputs(&mut net, model.plan(), 1);
    let [headers, _, polys] = Layers::new(model.plan()).unwrap().coefficients.setup_lens();
    let heard: Vec<Vec<u8>> = (0..2)
        .map(|_| {
            let result = run_on(&model, &inputs, 1, TwoPartyOptions::default()).unwrap();
            let end = 8 + model.public_part().len() + result.client.setup.bytes_down as usize;
            result.heard[1].0[end - headers - polys..end].to_vec()
        })
        .collect();
    assert_eq!(&heard[0][..4], b"HRF1");
    assert!(heard[0] == heard[1]);
}

#[test]
fn damaged_files_are_asked_for_again() {
    let folder = Temporary::new("damage");
    let mut net = network(34);
    let model = model_of(&net);
    let all = whole(&model);
    assert_eq!(session(&mut net, &model, Some(&folder.0)), all);
    let files = folder.files();
    let good = std::fs::read(&files[0]).unwrap();
    let other = std::fs::read(&files[1]).unwrap();
    let mut flipped: Vec<Vec<u8>> = Vec::new();
    for at in [0, 5, 20, 50, 80, good.len() / 2, good.len() - 1] {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        flipped.push(bytes);
    }
    let longer = [&good[..], b"x"].concat();
    for bytes in flipped.into_iter().chain([longer, other, Vec::new(), good[..79].to_vec()]) {
        std::fs::write(&files[0], &bytes).unwrap();
        let sent = session(&mut net, &model, Some(&folder.0));
        assert!(sent > 0 && sent < all, "{sent} of {all}");
        assert!(std::fs::read(&files[0]).unwrap() == good);
    }
    // Cut within the last polynomial: only that one comes again.
    std::fs::write(&files[0], &good[..good.len() - 1]).unwrap();
    let sent = session(&mut net, &model, Some(&folder.0));
    assert!(sent > 0 && sent <= good.len() - 80, "{sent}");
    assert_eq!(session(&mut net, &model, Some(&folder.0)), 0);
}

/// A connection that ends after so many bytes received; one that claims to hold polynomials beyond all numbers.
enum Trouble {
    Cut(usize),
    Lie,
}

struct Troubled(MemoryChannel, Trouble);

impl Channel for Troubled {
    fn send(&mut self, data: &[u8]) -> ChannelResult<()> {
        if matches!(self.1, Trouble::Lie) && data == [0; 8] {
            return self.0.send(&[0xff; 8]);
        }
        self.0.send(data)
    }
    fn recv(&mut self, buf: &mut [u8]) -> ChannelResult<()> {
        if let Trouble::Cut(left) = &mut self.1 {
            *left = left.checked_sub(buf.len()).ok_or(MpcError::Closed)?;
        }
        self.0.recv(buf)
    }
    fn flush(&mut self) -> ChannelResult<()> {
        self.0.flush()
    }
    fn stats(&self) -> Stats {
        self.0.stats()
    }
}

/// Opens a session over a troubled connection: what the client and the server say.
fn troubled(
    model: &TwoPartyModel,
    folder: Option<&Path>,
    trouble: Trouble,
) -> (Option<Error>, Option<Error>) {
    let (far, near) = memory_pair();
    std::thread::scope(|scope| {
        let served = scope.spawn(move || model.serve_plain(Box::new(far), &mut |_| {}));
        let options = folder.map(options).unwrap_or_default();
        let opened = TwoPartyClient::open(Box::new(Troubled(near, trouble)), options);
        let client = opened.and_then(TwoPartyClient::close).err();
        (client, served.join().unwrap().err())
    })
}

#[test]
fn an_interrupted_set_up_goes_on_where_it_ended() {
    let folder = Temporary::new("interrupted");
    let mut net = wide(35);
    let model = model_of(&net);
    let layers = Layers::new(model.plan()).unwrap();
    let all = whole(&model);
    let setup = super::super::predict(model.plan(), &layers, cost_kind(&model), 1).setup.bytes_down as usize;
    let before = 8 + model.public_part().len() + setup - all;
    let mut left = all;
    // Ends in the first stage's set-up, then in what is left of it, then in the second's.
    for (part, parts) in [(1, 4), (1, 3), (2, 3)] {
        let (client, _) = troubled(&model, Some(&folder.0), Trouble::Cut(before + left * part / parts));
        assert!(client.is_some());
        let before = left;
        left = all - held(&model, &folder);
        assert!(left > 0 && left < before, "{left} of {all}");
    }
    assert_eq!(session(&mut net, &model, Some(&folder.0)), left);
    assert_eq!(session(&mut net, &model, Some(&folder.0)), 0);
}

/// Bytes of whole polynomials in the folder.
fn held(model: &TwoPartyModel, folder: &Temporary) -> usize {
    let layers = Layers::new(model.plan()).unwrap();
    let bytes = |file: PathBuf| {
        let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
        let stage: usize = name.rsplit('-').next().unwrap().parse().unwrap();
        let poly = layers.coefficients.setup_poly_len(stage);
        (std::fs::metadata(file).unwrap().len() as usize).saturating_sub(80) / (poly + 16) * poly
    };
    folder.files().into_iter().map(bytes).sum()
}

#[test]
fn a_client_that_claims_too_much_is_refused() {
    let model = model_of(&network(36));
    let (_, server) = troubled(&model, None, Trouble::Lie);
    let Some(Error::Protocol(ProtocolError::Message { kind, detail })) = server else {
        panic!("{server:?}");
    };
    assert!(kind.contains("set-up") && detail.contains("4294967295"), "{kind}: {detail}");
}

#[test]
fn folders_that_cannot_be_used_and_files_that_are_in_use() {
    let folder = Temporary::new("use");
    let mut net = network(37);
    let model = model_of(&net);
    let all = whole(&model);
    assert_eq!(session(&mut net, &model, Some(&folder.0)), all);
    // Another session has the first file: it is neither read nor written.
    let files = folder.files();
    let held = std::fs::File::open(&files[0]).unwrap();
    held.lock().unwrap();
    let before = std::fs::read(&files[0]).unwrap();
    let sent = session(&mut net, &model, Some(&folder.0));
    assert!(sent > 0 && sent < all);
    drop(held);
    assert!(std::fs::read(&files[0]).unwrap() == before);
    assert_eq!(session(&mut net, &model, Some(&folder.0)), 0);
    // A file where the folder should be.
    let (client, _) = troubled(&model, Some(&files[0]), Trouble::Cut(usize::MAX));
    assert!(matches!(client, Some(Error::Store(_))), "{client:?}");
    assert!(client.unwrap().to_string().contains("set-ups cannot be kept in"));
}
