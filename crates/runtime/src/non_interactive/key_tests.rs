//! Keys that survive sessions and servers: sent once, found again, damaged, too many, asked for by peers who have no right to them.

use super::tests::{client, images, net, plain};
use super::*;
use crate::channel::{pipe, Channel};
use crate::error::StoreError;
use crate::wire::{FrameBuilder, Hello, Keys, Kind, PROTOCOL};
use crate::{ClientSession, Compute, Error, Input, InputData, ProtocolError};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// A folder that is removed at the end.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("hushnet-keys-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn store(&self, policy: KeyPolicy) -> Arc<KeyStore> {
        Arc::new(KeyStore::open(&self.0.join("server"), policy).unwrap())
    }

    fn kept(&self) -> Vec<PathBuf> {
        files(&self.0.join("server"), ".keys")
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn files(folder: &Path, suffix: &str) -> Vec<PathBuf> {
    let all = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path());
    all.filter(|p| p.to_str().unwrap().ends_with(suffix)).collect()
}

fn model() -> Arc<NonInteractiveModel> {
    Arc::new(NonInteractiveModel::new(&net(None).read().unwrap(), Compute::default()).unwrap())
}

/// All that a set of keys takes on the wire, and in a file.
fn sizes(model: &NonInteractiveModel) -> (u64, u64) {
    let wire = predict(model.plan()).keys;
    (wire, wire - 16 * messages::keys(model.plan().params(), &KeysNeeded::of(model.plan())).len() as u64)
}

/// Runs a session of the client that keeps its secret in `folder`, if any; bytes that its set-up sent.
fn session(
    model: &Arc<NonInteractiveModel>,
    store: Option<&Arc<KeyStore>>,
    folder: Option<&Path>,
    server: &str,
) -> u64 {
    let keys = folder.map(|path| KeyFolder { path: path.to_owned(), server: server.into() });
    let open = |channel| NonInteractiveClient::open(channel, NonInteractiveOptions { keys, ..client() });
    let data = images(3);
    let input = [Input { name: "image", shape: vec![3, 1, 4, 4], data: InputData::F64(&data) }];
    let mut go = |_: &crate::Progress<'_>| ControlFlow::Continue(());
    let (outputs, trace, _) = match store {
        Some(store) => {
            let served = KeepingKeys::new(model.clone(), store.clone());
            crate::local::run_pipe(&served, open, &input, &mut go).unwrap()
        }
        None => crate::local::run_pipe(model.as_ref(), open, &input, &mut go).unwrap(),
    };
    for (image, got) in data.chunks(16).zip(outputs[0].data.chunks(2)) {
        let wanted = plain(image);
        assert!((wanted[0] - got[0]).abs() + (wanted[1] - got[1]).abs() < 1e-3, "{wanted:?}, {got:?}");
    }
    trace.setup_bytes_up
}

#[test]
fn a_client_that_comes_again_sends_no_keys_also_to_a_server_that_was_started_anew() {
    let (home, model) = (Temporary::new("again"), model());
    let (wire, stored) = sizes(&model);
    let own = home.0.join("client");
    let store = home.store(KeyPolicy::default());
    let sent = session(&model, Some(&store), Some(&own), "hush://a");
    assert!((wire..wire + 64).contains(&sent), "{sent} of {wire}");
    assert_eq!(home.kept().len(), 1);
    assert_eq!(std::fs::metadata(&home.kept()[0]).unwrap().len(), stored);
    assert!(session(&model, Some(&store), Some(&own), "hush://a") < 64);
    drop(store);
    // What a killed server has not finished goes, and what it has finished stays.
    std::fs::write(home.0.join("server/7.part"), b"half").unwrap();
    let store = home.store(KeyPolicy::default());
    assert!(files(&home.0.join("server"), ".part").is_empty());
    assert!(session(&model, Some(&store), Some(&own), "hush://a") < 64);
    // Another server of the same plan gets other keys: the two cannot tell that they serve one client.
    assert!(session(&model, Some(&store), Some(&own), "hush://b") >= wire);
    assert_eq!((home.kept().len(), files(&own, ".client-key").len()), (2, 2));
    // A server that keeps nothing is sent the same keys every time, and a client that keeps nothing sends what it always sent.
    assert!(session(&model, None, Some(&own), "hush://a") >= wire);
    assert_eq!(session(&model, Some(&store), None, "hush://a"), wire);
    assert_eq!(home.kept().len(), 2);
}

#[cfg(unix)]
#[test]
fn a_folder_of_secrets_that_everybody_may_write_to_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let (home, model) = (Temporary::new("everybody"), model());
    let own = home.0.join("client");
    std::fs::create_dir(&own).unwrap();
    let open = |mode| {
        std::fs::set_permissions(&own, std::fs::Permissions::from_mode(mode)).unwrap();
        let due = messages::keys(model.plan().params(), &KeysNeeded::of(model.plan()));
        let folder = KeyFolder { path: own.clone(), server: "s".into() };
        kept::KeptSecret::open(&folder, b"", &due).map(drop)
    };
    // Also with the sticky bit: another user's file is not removed, and read.
    for mode in [0o777, 0o1777, 0o702] {
        let refused = open(mode).unwrap_err();
        assert!(refused.to_string().contains("everybody may write"), "{refused}");
    }
    for mode in [0o700, 0o770, 0o755] {
        open(mode).unwrap();
    }
}

/// What happens to the bytes of a file.
type Damage<'a> = &'a dyn Fn(&mut Vec<u8>);

#[test]
fn damaged_files_are_found_removed_and_written_again() {
    let (home, model) = (Temporary::new("damaged"), model());
    let (wire, own) = (sizes(&model).0, home.0.join("client"));
    let store = home.store(KeyPolicy::default());
    session(&model, Some(&store), Some(&own), "s");
    let path = home.kept()[0].clone();
    let good = std::fs::read(&path).unwrap();
    let damages: [Damage<'_>; 4] =
        [&|b| b[good.len() / 2] ^= 1, &|b| b[3] ^= 0x80, &|b| b.truncate(good.len() - 1), &|b| b.push(0)];
    for damage in damages {
        let mut bytes = good.clone();
        damage(&mut bytes);
        std::fs::write(&path, &bytes).unwrap();
        assert!(session(&model, Some(&store), Some(&own), "s") >= wire);
        assert_eq!(std::fs::read(&path).unwrap(), good);
        assert!(session(&model, Some(&store), Some(&own), "s") < 64);
    }
    // The client's own file, damaged: new keys.
    let secret = &files(&own, ".client-key")[0];
    let mut bytes = std::fs::read(secret).unwrap();
    bytes[20] ^= 1;
    std::fs::write(secret, &bytes).unwrap();
    assert!(session(&model, Some(&store), Some(&own), "s") >= wire);
    assert_eq!(home.kept().len(), 2);
    #[cfg(unix)]
    for path in [secret.as_path(), home.kept()[0].as_path()] {
        let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(path).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
    }
}

#[test]
fn all_keys_stay_within_the_quota_and_those_used_longest_ago_make_room() {
    let (home, model) = (Temporary::new("quota"), model());
    let (wire, one) = sizes(&model);
    let own = home.0.join("client");
    // Too little for one set: the session goes on, nothing is kept, and nobody is driven out.
    let store = home.store(KeyPolicy { quota: one - 1, ..KeyPolicy::default() });
    assert!(session(&model, Some(&store), Some(&own), "a") >= wire);
    assert!(home.kept().is_empty());
    drop(store);
    let policy = KeyPolicy { quota: 2 * one + one / 2, ..KeyPolicy::default() };
    let store = home.store(policy);
    for server in ["a", "b"] {
        session(&model, Some(&store), Some(&own), server);
    }
    assert!(session(&model, Some(&store), Some(&own), "a") < 64);
    session(&model, Some(&store), Some(&own), "c");
    assert_eq!(home.kept().len(), 2);
    assert!(session(&model, Some(&store), Some(&own), "a") < 64);
    assert!(session(&model, Some(&store), Some(&own), "c") < 64);
    // What is being written counts as it comes.
    let (first, second) = (arrives(&model, &store), arrives(&model, &store));
    assert!(store.begin(one).is_none() && home.kept().is_empty());
    drop((first, second));
    assert!(files(&home.0.join("server"), ".part").is_empty() && store.begin(one).is_some());
    // Out of date.
    session(&model, Some(&store), Some(&own), "a");
    let old = SystemTime::now() - policy.age - Duration::from_secs(60);
    std::fs::File::options().append(true).open(&home.kept()[0]).unwrap().set_modified(old).unwrap();
    assert!(session(&model, Some(&store), Some(&own), "a") >= wire);
}

/// Keys that have come, and are not finished.
fn arrives<'a>(model: &NonInteractiveModel, store: &'a KeyStore) -> key_store::Writing<'a> {
    let due = messages::keys(model.plan().params(), &KeysNeeded::of(model.plan()));
    let mut writing = store.begin(sizes(model).1).unwrap();
    due.iter().for_each(|key| writing.add(key, &vec![0; key.bytes]));
    writing
}

#[test]
fn keys_that_are_announced_and_not_sent_drive_nobody_out() {
    let (home, model) = (Temporary::new("announced"), model());
    let (wire, one) = sizes(&model);
    let own = home.0.join("client");
    let store = home.store(KeyPolicy { quota: 2 * one + one / 2, ..KeyPolicy::default() });
    for server in ["a", "b"] {
        session(&model, Some(&store), Some(&own), server);
    }
    let ask = || FrameBuilder::message(Kind::Keys, &Keys { hash: Vec::new(), known: true }).unwrap();
    for _ in 0..8 {
        assert_eq!(says(&model, &store, vec![ask()]).1.len(), 1);
    }
    // Not all at once, either.
    let at_once: Vec<_> = (0..64).filter_map(|_| store.begin(one)).collect();
    assert_eq!((at_once.len(), home.kept().len()), (64, 2));
    drop(at_once);
    // Who sends a part makes room for a part of twice its size at most.
    let key = &messages::keys(model.plan().params(), &KeysNeeded::of(model.plan()))[0];
    let (first, mut parts) = (key.bytes as u64, Vec::new());
    while let Some(mut part) = store.begin(one).filter(|_| parts.len() < 64) {
        part.add(key, &vec![0; key.bytes]);
        parts.push(part);
    }
    let held: u64 =
        files(&home.0.join("server"), "").iter().map(|p| std::fs::metadata(p).unwrap().len()).sum();
    assert!(held <= 2 * one + one / 2 && held >= first, "{held}");
    drop(parts);
    let left = home.kept().len();
    assert!(files(&home.0.join("server"), ".part").is_empty());
    let sent: u64 = ["a", "b"].iter().map(|s| session(&model, Some(&store), Some(&own), s)).sum();
    assert!(sent < (2 - left as u64) * (wire + 64) + 128, "{sent}");
}

#[test]
fn servers_share_a_folder() {
    let (home, model) = (Temporary::new("shared"), model());
    let (wire, one) = sizes(&model);
    let own = home.0.join("client");
    let policy = KeyPolicy { quota: 2 * one + one / 2, ..KeyPolicy::default() };
    let (first, second) = (home.store(policy), home.store(policy));
    assert!(session(&model, Some(&first), Some(&own), "a") >= wire);
    assert!(session(&model, Some(&second), Some(&own), "a") < 64, "what one was sent, the other knows");
    // What one server writes counts for the other, and stays when a third one starts.
    let (left, right) = (arrives(&model, &first), arrives(&model, &second));
    assert_eq!((files(&home.0.join("server"), ".part").len(), home.kept().len()), (2, 0));
    assert!(first.begin(one).is_none() && second.begin(one).is_none());
    let third = home.store(policy);
    assert_eq!(files(&home.0.join("server"), ".part").len(), 2);
    drop(left);
    assert!(third.begin(one).is_some());
    drop(right);
    assert!(files(&home.0.join("server"), ".part").is_empty());
    // Many at once.
    std::thread::scope(|s| {
        for (number, store) in [&first, &second, &third, &first, &second].into_iter().enumerate() {
            let (model, own) = (&model, own.clone());
            s.spawn(move || session(model, Some(store), Some(&own), &format!("client {number}")));
        }
    });
    assert!((1..=2).contains(&home.kept().len()), "within the quota");
    std::fs::write(home.0.join("file"), b"").unwrap();
    let refused = KeyStore::open(&home.0.join("file"), KeyPolicy::default());
    assert!(matches!(refused, Err(Error::Store(StoreError::Keys { .. }))));
}

/// What the server makes of a client that says these frames after its greeting, and its answers to Keys.
fn says(
    model: &Arc<NonInteractiveModel>,
    store: &Arc<KeyStore>,
    frames: Vec<crate::wire::Frame>,
) -> (Error, Vec<Vec<u8>>) {
    let (mut ours, theirs) = pipe();
    let served = KeepingKeys::new(model.clone(), store.clone());
    let server = std::thread::spawn(move || {
        crate::session::server::Served::session(&served, Box::new(theirs), &mut |_| {}).0.unwrap_err()
    });
    ours.send(FrameBuilder::message(Kind::Hello, &Hello { protocol: PROTOCOL, ..Hello::default() }).unwrap())
        .unwrap();
    ours.recv().unwrap();
    let mut answers = Vec::new();
    for frame in frames {
        let asks = frame.kind() == Kind::Keys;
        // The server may have closed.
        let _ = ours.send(frame);
        if asks {
            answers.extend(ours.recv().ok().filter(|f| f.kind() == Kind::Keys).map(|f| f.bytes().to_vec()));
        }
    }
    drop(ours);
    (server.join().unwrap(), answers)
}

#[test]
fn peers_learn_nothing_but_that_a_hash_is_known_and_leave_nothing_behind() {
    let (home, model) = (Temporary::new("peers"), model());
    let store = home.store(KeyPolicy::default());
    let own = home.0.join("client");
    session(&model, Some(&store), Some(&own), "a");
    let ask = |hash: Vec<u8>| FrameBuilder::message(Kind::Keys, &Keys { hash, known: true }).unwrap();
    let invalid = |e: &Error| matches!(e, Error::Protocol(ProtocolError::Message { kind: "Keys", .. }));
    for length in [1, 31, 33, 1000] {
        let (error, answers) = says(&model, &store, vec![ask(vec![7; length])]);
        assert!(invalid(&error) && answers.is_empty(), "{length}: {error:?}");
    }
    // A hash that is not known, and none, have the same answer.
    let (_, unknown) = says(&model, &store, vec![ask(vec![7; 32])]);
    let (_, none) = says(&model, &store, vec![ask(Vec::new())]);
    assert_eq!((unknown.len(), &unknown), (1, &none));
    // One question a session: nobody tries hash after hash in one.
    let (error, answers) = says(&model, &store, vec![ask(vec![7; 32]), ask(vec![8; 32])]);
    assert!(
        matches!(error, Error::Protocol(ProtocolError::Unexpected { .. })) && answers.len() == 1,
        "{error:?}"
    );
    // The name of a file is no hash that would be answered.
    let name = home.kept()[0].file_stem().unwrap().to_str().unwrap().to_owned();
    let name = (0..32).map(|i| u8::from_str_radix(&name[2 * i..2 * i + 2], 16).unwrap()).collect();
    assert_eq!(says(&model, &store, vec![ask(name)]).1, none);
    // Keys that never come, and keys that are none.
    let key = &messages::keys(model.plan().params(), &KeysNeeded::of(model.plan()))[0];
    let noise = FrameBuilder::reuse(Vec::new(), Kind::Setup, 0, key.tile, key.bytes).unwrap().finish();
    says(&model, &store, vec![ask(Vec::new())]);
    says(&model, &store, vec![ask(Vec::new()), noise]);
    assert_eq!(home.kept().len(), 1);
    assert!(files(&home.0.join("server"), ".part").is_empty());
}

#[test]
fn a_disk_that_takes_nothing_costs_the_way_again_and_nothing_else() {
    let (home, model) = (Temporary::new("gone"), model());
    let (wire, own) = (sizes(&model).0, home.0.join("client"));
    let store = home.store(KeyPolicy::default());
    std::fs::remove_dir_all(home.0.join("server")).unwrap();
    for _ in 0..2 {
        assert!(session(&model, Some(&store), Some(&own), "a") >= wire);
    }
}

#[test]
fn a_server_that_claims_keys_which_were_never_made_is_refused() {
    let home = Temporary::new("claims");
    let plan = net(None).read().unwrap();
    let (ours, mut theirs) = pipe();
    let public = FrameBuilder::with_payload(Kind::Plan, &plan.public_part().unwrap()).unwrap();
    let server = std::thread::spawn(move || {
        theirs.recv().unwrap();
        theirs.send(public).unwrap();
        theirs.recv().unwrap();
        theirs
            .send(FrameBuilder::message(Kind::Keys, &Keys { hash: Vec::new(), known: true }).unwrap())
            .unwrap();
    });
    let keys = Some(KeyFolder { path: home.0.join("client"), server: "a".into() });
    let opened = NonInteractiveClient::open(Box::new(ours), NonInteractiveOptions { keys, ..client() });
    assert!(matches!(
        opened.map(|c| c.is_open()),
        Err(Error::Protocol(ProtocolError::Message { kind: "Keys", .. }))
    ));
    server.join().unwrap();
}
