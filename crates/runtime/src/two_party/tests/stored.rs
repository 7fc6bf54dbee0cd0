//! Set-ups kept by the client: none sent twice, interruptions, damage, other models, servers started anew, clients that lie.

use super::coefficients::{classifier, with_methods};
use super::networks::verify;
use super::*;
use crate::error::{ProtocolError, StoreError};
use hushnet_mpc::MpcError;
use std::path::{Path, PathBuf};

/// A folder that is removed at the end.
pub(super) struct Temporary(pub(super) PathBuf);

impl Temporary {
    pub(super) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("hushnet-setups-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }

    pub(super) fn files(&self) -> Vec<PathBuf> {
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

pub(super) fn network(seed: u64) -> Net {
    let mut net = classifier(seed);
    with_methods(&mut net, &["rotation-free"]);
    net
}

/// Other weights behind the same public plan: all of them negated.
pub(super) fn negated(mut net: Net) -> Net {
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

pub(super) fn options(folder: &Path) -> TwoPartyOptions {
    TwoPartyOptions { setups: Some(folder.to_owned()), ..TwoPartyOptions::default() }
}

/// Bytes of all set-ups on the wire.
fn sent(layers: &Layers) -> usize {
    layers.set_ups().map(|(_, s)| s.sent as usize).sum()
}

/// One session, its results and its traffic checked; bytes of set-ups that were sent.
pub(super) fn session(net: &mut Net, model: &TwoPartyModel, folder: Option<&Path>) -> usize {
    let inputs = random_inputs(net, model.plan(), 1);
    let options = folder.map(options).unwrap_or_default();
    let result = run_on(model, &inputs, 1, options).unwrap();
    verify(net, model.plan(), &inputs, 1, &result);
    let layers = Layers::new(model.plan()).unwrap();
    let polys = sent(&layers);
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
pub(super) fn whole(model: &TwoPartyModel) -> usize {
    sent(&Layers::new(model.plan()).unwrap())
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
    // The same plan served anew is another preparation with another set-up. That of the first stays.
    let again = model_of(&net);
    assert_eq!(session(&mut net, &again, Some(&folder.0)), all);
    assert_eq!(session(&mut net, &again, Some(&folder.0)), 0);
    assert_eq!(session(&mut net, &model, Some(&folder.0)), 0);
    // Another model of the same public plan wipes nothing either.
    let foreign = model_of(&other);
    assert!(foreign.plan().digest().unwrap() == model.plan().digest().unwrap());
    assert_eq!(session(&mut other, &foreign, Some(&folder.0)), all);
    assert_eq!(session(&mut other, &foreign, Some(&folder.0)), 0);
    assert_eq!(session(&mut net, &model, Some(&folder.0)), 0);
    assert_eq!(folder.files().len(), 6);
}

#[test]
fn set_ups_are_the_same_bytes_for_every_session() {
    let mut net = network(33);
    let model = model_of(&net);
    let inputs = random_inputs(&mut net, model.plan(), 1);
    let polys = whole(&model);
    let heard: Vec<Vec<u8>> = (0..2)
        .map(|_| {
            let result = run_on(&model, &inputs, 1, TwoPartyOptions::default()).unwrap();
            let end = 8 + model.public_part().len() + result.client.setup.bytes_down as usize;
            result.heard[1].0[end - polys..end].to_vec()
        })
        .collect();
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

/// Polynomials of a stage's set-up: stored, there is a header of 80 bytes, and each has a tag of 16.
fn polys_of(set_up: &super::super::methods::SetUpBytes) -> usize {
    (set_up.stored - 80 - set_up.sent) as usize / 16
}

/// Bytes of polynomials in the folder that a client claims: all of a stage's, or whole sixteenths.
fn held(model: &TwoPartyModel, folder: &Temporary) -> usize {
    let layers = Layers::new(model.plan()).unwrap();
    let bytes = |file: PathBuf| {
        let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
        let stage: usize = name.rsplit('-').next().unwrap().parse().unwrap();
        let set_up = layers.set_ups().find(|s| s.0 == stage).unwrap().1;
        let poly = set_up.sent as usize / polys_of(&set_up);
        let polys = (std::fs::metadata(file).unwrap().len() as usize).saturating_sub(80) / (poly + 16);
        let all = polys_of(&set_up);
        poly * if polys == all { all } else { polys - polys % all.div_ceil(16) }
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

/// The bytes of every file of a folder.
fn contents(folder: &Temporary) -> Vec<(PathBuf, Vec<u8>)> {
    folder.files().into_iter().map(|p| (p.clone(), std::fs::read(p).unwrap())).collect()
}

/// Opens a session with options; what the client says.
fn opened(model: &TwoPartyModel, options: TwoPartyOptions) -> Option<Error> {
    let (far, near) = memory_pair();
    std::thread::scope(|scope| {
        scope.spawn(move || drop(model.serve_plain(Box::new(far), &mut |_| {})));
        TwoPartyClient::open(Box::new(near), options).and_then(TwoPartyClient::close).err()
    })
}

#[test]
fn a_server_gives_no_client_a_name_to_come_back_with() {
    let model = model_of(&network(38));
    // Before a client says what it holds, the server sends nothing but its plan and the set-up of oblivious transfers.
    let layers = Layers::new(model.plan()).unwrap();
    let kind = cost_kind(&model);
    let down = super::super::predict(model.plan(), &layers, kind, 1).setup.bytes_down as usize;
    let mut plain = hushnet_mpc::CostModel::new(kind);
    hushnet_mpc::setup_cost(&mut plain);
    assert_eq!(down, plain.cost().bytes_sent_by_0 as usize + whole(&model));
    // The plan is the same for all clients of a server, and another for every preparation.
    let public =
        |m: &TwoPartyModel| TwoPartyPlan::from_bytes(m.public_part(), &PlanOptions::default()).unwrap();
    assert!(public(&model).preparation().is_some());
    let again = model_of(&network(38));
    assert!(public(&model).digest().unwrap() != public(&again).digest().unwrap());
    // A client that knows the digest refuses a plan made for it alone.
    let known = |m: &TwoPartyModel| TwoPartyOptions {
        plan_digest: Some(public(m).digest().unwrap()),
        ..TwoPartyOptions::default()
    };
    assert!(opened(&model, known(&model)).is_none());
    let refused = opened(&again, known(&model)).unwrap();
    assert!(refused.to_string().contains("another digest"), "{refused}");
    // Plans without rotation-free stages name none.
    let mut cheetah = network(38);
    with_methods(&mut cheetah, &["cheetah"]);
    assert!(public(&model_of(&cheetah)).preparation().is_none());
}

#[test]
fn servers_do_not_touch_each_others_set_ups() {
    let folder = Temporary::new("apart");
    let model = model_of(&network(39));
    let at = |server: &str| TwoPartyOptions { server: Some(server.into()), ..options(&folder.0) };
    assert!(opened(&model, at("hush://a:1")).is_none());
    let before = contents(&folder);
    assert_eq!(before.len(), 2);
    // The same plan under another address, and another plan under the same one.
    assert!(opened(&model, at("hush://b:1")).is_none());
    assert!(opened(&model_of(&network(40)), at("hush://a:1")).is_none());
    let after = contents(&folder);
    assert_eq!(after.len(), 6);
    assert!(before.iter().all(|file| after.contains(file)));
}

#[test]
fn folders_have_a_quota_and_files_an_age() {
    let folder = Temporary::new("quota");
    let model = model_of(&network(41));
    let layers = Layers::new(model.plan()).unwrap();
    let stored: u64 = layers.set_ups().map(|(_, s)| s.stored).sum();
    let with = |quota: u64| TwoPartyOptions {
        setups_policy: super::super::SetupPolicy { quota, ..Default::default() },
        ..options(&folder.0)
    };
    let refused = opened(&model, with(stored - 1)).unwrap();
    assert!(matches!(refused, Error::Store(StoreError::Quota { .. })), "{refused:?}");
    for part in ["--setups-quota", &stored.to_string(), &(stored - 1).to_string()] {
        assert!(refused.to_string().contains(part), "{refused}");
    }
    assert!(folder.files().is_empty());
    assert!(opened(&model, with(stored)).is_none());
    assert_eq!(folder.files().iter().map(|f| std::fs::metadata(f).unwrap().len()).sum::<u64>(), stored);
    // The plan's own files count once; those of others count beside it.
    assert!(opened(&model, with(stored)).is_none());
    let other = model_of(&network(41));
    assert!(opened(&other, with(2 * stored - 1)).is_some());
    // Files that nobody used for longer than the age go; what is no set-up, and what a session holds, stays.
    std::fs::write(folder.0.join("notes.txt"), "mine").unwrap();
    let files: Vec<PathBuf> =
        folder.files().into_iter().filter(|f| f.extension().unwrap() == "setup").collect();
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(40 * 24 * 3600);
    for file in folder.files() {
        std::fs::File::options().write(true).open(&file).unwrap().set_modified(long_ago).unwrap();
    }
    let held = std::fs::File::open(&files[0]).unwrap();
    held.lock().unwrap();
    assert!(opened(&other, with(3 * stored)).is_none());
    assert!(files[0].exists() && !files[1].exists() && folder.0.join("notes.txt").exists());
    // A session that uses a file makes it young again while it is not yet too old.
    drop(held);
    let file = std::fs::File::options().write(true).open(&files[0]).unwrap();
    let lately = std::time::SystemTime::now() - std::time::Duration::from_secs(20 * 24 * 3600);
    file.set_modified(lately).unwrap();
    assert!(opened(&model, with(3 * stored)).is_none());
    let used = file.metadata().unwrap().modified().unwrap();
    assert!(
        used > lately + std::time::Duration::from_secs(1),
        "the file that was there is used, and by this session"
    );
}

#[test]
fn set_ups_beyond_the_clients_memory_are_refused_before_they_are_sent() {
    let model = model_of(&network(42));
    let mut options = TwoPartyOptions::default();
    let layers = Layers::new(model.plan()).unwrap();
    let need = super::super::memory::of_session(model.plan(), &layers, 1, false).bytes();
    options.plan.limits.memory_bytes = need;
    assert!(opened(&model, options.clone()).is_none());
    options.plan.limits.memory_bytes = need - 1;
    let refused = opened(&model, options).unwrap();
    let Error::Plan(crate::plan::PlanError::Memory { need: said, limit, .. }) = &refused else {
        panic!("{refused:?}");
    };
    assert_eq!((*said, *limit), (need, need - 1));
    assert!(refused.to_string().contains("--max-memory"), "{refused}");
    // Set-ups are in the account with their stages.
    let setups: u64 = layers.set_ups().map(|(_, s)| s.prepared).sum();
    assert!(setups > 0 && need > setups);
}
