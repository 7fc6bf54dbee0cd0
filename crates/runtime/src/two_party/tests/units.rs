//! Prepared inferences: right results, exact traffic, uniform messages, and no unit that is used twice.

use super::coefficients::{classifier, with_methods};
use super::networks::verify;
use super::stored::{negated, Temporary};
use super::views::{correlation, deviation};
use super::*;
use crate::error::UnitError;
use crate::two_party::predict;
use crate::two_party::units::server::{UnitPolicy, UnitStore};
use hushnet_mpc::{MpcError, OtKind};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

/// Fails for good when so many operations of a session have passed: what the peer of a killed process sees, and what the files then are.
#[derive(Clone)]
struct Cut(Arc<AtomicI64>);

impl Cut {
    fn after(steps: i64) -> Self {
        Self(Arc::new(AtomicI64::new(steps)))
    }

    fn step(&self) -> ChannelResult<()> {
        if self.0.fetch_sub(1, Ordering::SeqCst) <= 0 {
            return Err(MpcError::Closed);
        }
        Ok(())
    }
}

/// A probe that is cut.
struct Cutting(Probe, Cut);

impl Channel for Cutting {
    fn send(&mut self, data: &[u8]) -> ChannelResult<()> {
        self.1.step()?;
        self.0.send(data)
    }
    fn recv(&mut self, buf: &mut [u8]) -> ChannelResult<()> {
        self.1.step()?;
        self.0.recv(buf)
    }
    fn flush(&mut self) -> ChannelResult<()> {
        self.1.step()?;
        self.0.flush()
    }
    fn stats(&self) -> Stats {
        self.0.stats()
    }
}

/// Both parties' folders.
pub(super) struct Folders {
    pub(super) client: Temporary,
    pub(super) server: Temporary,
    policy: UnitPolicy,
}

impl Folders {
    pub(super) fn new(name: &str) -> Self {
        let [client, server] =
            ["client", "server"].map(|party| Temporary::new(&format!("units-{name}-{party}")));
        Self { client, server, policy: UnitPolicy::default() }
    }

    fn options(&self) -> TwoPartyOptions {
        TwoPartyOptions {
            units: Some(self.client.0.clone()),
            ot: Some(OtKind::Iknp),
            group: Some(2),
            ..TwoPartyOptions::default()
        }
    }

    /// Whole units at the client and at the server.
    pub(super) fn counts(&self) -> [usize; 2] {
        [&self.client, &self.server].map(|folder| {
            let whole = |f: &std::path::PathBuf| f.extension().is_some_and(|e| e == "unit");
            folder.files().iter().filter(|f| whole(f)).count()
        })
    }
}

/// One session of a server that keeps units; what the client's end gives, and what the server's does.
type Ends<T> = (Result<T, Error>, Result<(TwoPartyTrace, Vec<(usize, Vec<u64>)>), Error>);

fn session<T>(
    model: &TwoPartyModel,
    folders: &Folders,
    options: TwoPartyOptions,
    cuts: [&Cut; 2],
    act: impl FnOnce(&mut TwoPartyClient) -> Result<T, Error>,
) -> (Ends<T>, [(Vec<u8>, u64); 2]) {
    let store = UnitStore::open(&folders.server.0, folders.policy).unwrap();
    let (a, b) = memory_pair();
    let (ha, hb) = (Heard::default(), Heard::default());
    let far = Cutting(Probe(a, ha.clone()), cuts[0].clone());
    let near = Cutting(Probe(b, hb.clone()), cuts[1].clone());
    let ends = std::thread::scope(|scope| {
        let store = &store;
        let served = scope.spawn(move || {
            LOG.take();
            model.serve_units(Box::new(far), store, &mut |_| {}).map(|t| (t, LOG.take()))
        });
        LOG.take();
        let result = TwoPartyClient::open(Box::new(near), options).and_then(|mut client| {
            let result = act(&mut client)?;
            client.close()?;
            Ok(result)
        });
        (result, served.join().unwrap())
    });
    (ends, [&ha, &hb].map(|h| std::mem::take(&mut *h.0.lock().unwrap())))
}

fn whole() -> Cut {
    Cut::after(i64::MAX)
}

pub(super) fn prepare(
    model: &TwoPartyModel,
    folders: &Folders,
    count: usize,
) -> (TwoPartyTrace, TwoPartyTrace) {
    let act = |client: &mut TwoPartyClient| client.prepare(count, &mut |_| ControlFlow::Continue(()));
    let ((client, server), _) = session(model, folders, folders.options(), [&whole(), &whole()], act);
    (client.unwrap(), server.unwrap().0)
}

fn asked<'a>(plan: &TwoPartyPlan, inputs: &'a [Vec<f64>], images: usize) -> Vec<Input<'a>> {
    let port = |(p, v): (&crate::plan::Port, &'a Vec<f64>)| Input {
        name: Box::leak(p.name.clone().into_boxed_str()),
        shape: [&[images], plan.tensors()[p.tensor].shape.as_slice()].concat(),
        data: InputData::F64(v),
    };
    plan.inputs().iter().zip(inputs).map(port).collect()
}

pub(super) fn infer(
    model: &TwoPartyModel,
    folders: &Folders,
    inputs: &[Vec<f64>],
    images: usize,
) -> Result<Run, Error> {
    let data = asked(model.plan(), inputs, images);
    let act = |client: &mut TwoPartyClient| client.infer(&data, &mut |_| ControlFlow::Continue(()));
    let ((client, server), heard) = session(model, folders, folders.options(), [&whole(), &whole()], act);
    let (server, log) = match (client.is_ok(), server) {
        (_, Ok(server)) => server,
        // The client sees that the connection has ended; over frames it is told why.
        (_, Err(e)) => return Err(e),
    };
    let (outputs, trace) = client?;
    Ok(Run { outputs, client: trace, server, shares: [log, LOG.take()], heard })
}

fn model_of(net: &Net) -> TwoPartyModel {
    TwoPartyModel::new(&plan_of(net).unwrap(), Compute::default()).unwrap()
}

/// Two layers read the image, one of them its sum with another tensor; shapes with pads, strides and groups.
fn branching(seed: u64) -> Net {
    let mut net = Net::new(28, seed);
    let x = net.input("image", &[2, 9, 7], 5, 31);
    let a = net.conv(x, 4, 3, 2, 1, 2, 5);
    let b = net.conv(x, 4, 1, 2, 0, 1, 5);
    let s = net.add(a, b);
    let r = net.relu(s);
    let t = net.truncate(r, 6, "non-negative", false);
    let c = net.conv(t, 4, 3, 1, 1, 4, 4);
    let d = net.dense(c, 5, 3);
    let t = net.truncate(d, 3, "any", false);
    net.open("logits", t);
    net
}

#[test]
fn prepared_inferences_give_the_results_of_every_method_with_exact_traffic() {
    for (number, methods) in [
        &["cheetah"][..],
        &["batch"],
        &["convfhe"],
        &["rotation-free"],
        &["cheetah", "gala"],
        &["batch", "rotation-free", "convfhe"],
    ]
    .into_iter()
    .enumerate()
    {
        let mut net = if methods.contains(&"gala") { classifier(7) } else { branching(number as u64) };
        with_methods(&mut net, methods);
        let plan = plan_of(&net).unwrap();
        let model = TwoPartyModel::new(&plan, Compute::default()).unwrap();
        let folders = Folders::new(&format!("methods-{number}"));
        let (client, server) = prepare(&model, &folders, 3);
        assert_eq!((client.units, server.units, client.images), (3, 3, 0));
        for (measured, what) in [(client.total, "client"), (server.offline.unwrap(), "server")] {
            let p = measured.predicted;
            assert_eq!((measured.bytes_up, measured.bytes_down), (p.bytes_up, p.bytes_down), "{what}");
        }
        assert_eq!(client.total.turns, client.total.predicted.client_turns);
        assert_eq!(folders.counts(), [3, 3]);
        let inputs = random_inputs(&mut net, &plan, 3);
        let result = infer(&model, &folders, &inputs, 3).unwrap();
        // Every stage against its operands, and bytes, turns and rounds of every stage against the account's.
        verify(&net, &plan, &inputs, 3, &result);
        assert_eq!(folders.counts(), [0, 0]);
        // What it cost before stands beside it.
        let before = result.client.prepared.unwrap();
        let rounded = |sum: u64, whole: u64| (whole..whole + 3).contains(&sum);
        assert!(rounded(before.bytes_up, client.total.bytes_up));
        assert!(rounded(before.bytes_down, client.total.bytes_down));
        assert!(before.seconds > 0.0);
        // The prediction says the same before anything runs.
        let layers = Layers::new(&plan).unwrap();
        let prediction = predict(&plan, &layers, OtKind::Iknp, 3).prepared.unwrap();
        let alone = TwoPartyOptions { group: Some(3), ..folders.options() };
        let act = |c: &mut TwoPartyClient| c.prepare(3, &mut |_| ControlFlow::Continue(()));
        let ((client, _), _) = session(&model, &folders, alone.clone(), [&whole(), &whole()], act);
        assert_eq!(prediction.offline, client.unwrap().total.predicted);
        let data = asked(&plan, &inputs, 3);
        let act = |c: &mut TwoPartyClient| c.infer(&data, &mut |_| ControlFlow::Continue(()));
        let ((client, _), _) = session(&model, &folders, alone, [&whole(), &whole()], act);
        let trace = client.unwrap().1;
        assert_eq!(prediction.online, trace.total.predicted, "{methods:?}");
        for (stage, predicted) in trace.stages.iter().zip(&prediction.stages) {
            assert_eq!(stage.phase.bytes_up, predicted.bytes_up, "{methods:?}: {}", stage.name);
        }
        assert_eq!(prediction.unprepared.len(), usize::from(methods.contains(&"gala")));
        // Layers that read one tensor share what is sent for it.
        if methods == ["cheetah"] {
            let sent: Vec<u64> =
                trace.stages.iter().filter(|s| s.kind == "linear").map(|s| s.phase.bytes_up).collect();
            let elements = |n: u64| (3 * n * 28).div_ceil(8);
            assert!(sent[0] >= elements(2 * 9 * 7) && sent[1] == 0 && sent[2] >= elements(4 * 5 * 4));
        }
    }
}

#[test]
fn units_are_sent_once_whatever_the_values_and_look_uniform() {
    let plan = super::views::planned(include_bytes!("../../../tests/fixtures/views_0.hush"));
    let model = TwoPartyModel::new(&plan, Compute::default()).unwrap();
    let folders = Folders::new("views");
    let linear: Vec<usize> = plan.linear().map(|p| p.index).collect();
    let mut views = Vec::new();
    for value in [0.0, 0.96] {
        prepare(&model, &folders, 4);
        let inputs = vec![vec![value; 4 * 4 * 16 * 16]];
        let run = infer(&model, &folders, &inputs, 4).unwrap();
        // What the server hears of the first layer: x - r of the image itself. Groups of two: the first.
        let group: u64 = run.client.stages[..linear[0]].iter().map(|s| s.phase.bytes_up).sum();
        assert_eq!(group, 0, "pads need no OTs in front of the first layer");
        let d = run.client.stages[linear[0]].phase;
        assert_eq!((d.bytes_up - d.predicted.bytes_up, d.bytes_down), (0, d.predicted.bytes_down));
        // The client's share is r from then on, the server's x + r: both uniform, and neither follows x.
        let first = plan.stages()[linear[0]].output.unwrap();
        let of = |party: usize, tensor: usize| {
            let log = &run.shares[party];
            log.iter().find(|(t, _)| *t == tensor).map(|(_, v)| v.clone()).unwrap()
        };
        for party in [0, 1] {
            let share = of(party, first);
            let bytes: Vec<u8> = share.iter().map(|v| super::views::byte(*v, &plan)).collect();
            assert!(deviation(&bytes).abs() < 6.0, "{party}: {}", deviation(&bytes));
        }
        let heard = &run.heard[0].0;
        // d is the only message of its stage: its bytes lie in front of the next protocol's.
        views.push((heard.clone(), of(0, first)));
    }
    let c = correlation(&views[0].1, &views[1].1);
    assert!(c.abs() < 6.0 / (views[0].1.len() as f64).sqrt(), "{c}");
    // All that the server hears online of images of zeros, and of other images.
    for (heard, _) in &views {
        let tail = &heard[heard.len() / 2..];
        assert!(deviation(tail).abs() < 6.0, "{}", deviation(tail));
    }
}

#[test]
fn what_is_spent_or_unknown_is_refused_and_never_replaced_silently() {
    let mut net = classifier(21);
    let (model, other) = (model_of(&net), model_of(&negated(classifier(21))));
    let folders = Folders::new("spent");
    let inputs = random_inputs(&mut net, model.plan(), 1);
    // Nothing there: the session stays open, and nothing was sent but its opening.
    let data = asked(model.plan(), &inputs, 1);
    let act = |client: &mut TwoPartyClient| {
        let refused = client.infer(&data, &mut |_| ControlFlow::Continue(()));
        assert!(matches!(refused, Err(Error::Units(UnitError::Lacking { needed: 1, found: 0, .. }))));
        assert!(client.is_open());
        assert_eq!(client.units().unwrap(), Some(0));
        client.prepare(1, &mut |_| ControlFlow::Continue(()))?;
        client.infer(&data, &mut |_| ControlFlow::Continue(()))
    };
    let ((client, server), _) = session(&model, &folders, folders.options(), [&whole(), &whole()], act);
    assert!(client.is_ok() && server.is_ok());
    // A copy of the client's folder that is put back, as no backup may be.
    prepare(&model, &folders, 1);
    let unit =
        folders.client.files().into_iter().find(|f| f.extension().is_some_and(|e| e == "unit")).unwrap();
    let copy = std::fs::read(&unit).unwrap();
    infer(&model, &folders, &inputs, 1).unwrap();
    std::fs::write(&unit, &copy).unwrap();
    let refused = |model: &TwoPartyModel| {
        matches!(infer(model, &folders, &inputs, 1), Err(Error::Units(UnitError::Unknown)))
    };
    assert!(refused(&model));
    assert_eq!(folders.counts(), [0, 0]);
    // Other weights behind the same public plan.
    prepare(&model, &folders, 1);
    assert!(refused(&other));
    assert_eq!(folders.counts(), [0, 1]);
    // Another client: another token.
    prepare(&model, &folders, 1);
    let token =
        folders.client.files().into_iter().find(|f| f.extension().is_some_and(|e| e == "token")).unwrap();
    std::fs::remove_file(&token).unwrap();
    assert!(refused(&model));
    // A damaged unit at the server is no unit.
    prepare(&model, &folders, 1);
    for file in folders.server.files().iter().filter(|f| f.extension().is_some_and(|e| e == "unit")) {
        let mut bytes = std::fs::read(file).unwrap();
        bytes[30] ^= 1;
        std::fs::write(file, bytes).unwrap();
    }
    assert!(refused(&model));
    // Nobody else reads what is kept.
    prepare(&model, &folders, 1);
    #[cfg(unix)]
    for folder in [&folders.client, &folders.server] {
        use std::os::unix::fs::PermissionsExt;
        for file in folder.files().iter().filter(|f| !f.ends_with("lock")) {
            assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{}", file.display());
        }
    }
    // A server without a folder says so.
    let options = folders.options();
    let (a, b) = memory_pair();
    std::thread::scope(|scope| {
        let served = scope.spawn(|| model.serve_plain(Box::new(a), &mut |_| {}));
        let mut client = TwoPartyClient::open(Box::new(b), options).unwrap();
        assert!(client.prepare(1, &mut |_| ControlFlow::Continue(())).is_err());
        assert!(matches!(served.join().unwrap(), Err(Error::Units(UnitError::NotKept))));
    });
}

#[test]
fn quotas_bound_what_is_kept_and_age_removes_it() {
    let mut net = classifier(22);
    let model = model_of(&net);
    let mut folders = Folders::new("quota");
    prepare(&model, &folders, 1);
    let whole_unit = |f: &std::path::PathBuf| f.extension().is_some_and(|e| e == "unit");
    let server: Vec<_> = folders.server.files().into_iter().filter(whole_unit).collect();
    let each = server[0].metadata().unwrap().len();
    let layers = Layers::new(model.plan()).unwrap();
    let prediction = predict(model.plan(), &layers, OtKind::Iknp, 1).prepared.unwrap();
    assert_eq!(prediction.server_bytes, each);
    let kept: Vec<_> = folders.client.files().into_iter().filter(whole_unit).collect();
    assert_eq!(prediction.client_bytes, kept[0].metadata().unwrap().len());
    for (client_quota, quota) in [(2 * each, 100 * each), (100 * each, 2 * each)] {
        folders.policy = UnitPolicy { quota, client_quota, ..folders.policy };
        let act = |client: &mut TwoPartyClient| client.prepare(2, &mut |_| ControlFlow::Continue(()));
        let ((client, server), _) = session(&model, &folders, folders.options(), [&whole(), &whole()], act);
        assert!(client.is_err());
        assert!(matches!(server, Err(Error::Units(UnitError::Full { .. }))));
        // Nothing is there in part, at either party.
        assert_eq!(folders.counts(), [1, 1]);
        assert!(folders.server.files().iter().all(|f| f.extension().is_none_or(|e| e != "part")));
    }
    let old = SystemTime::now() - Duration::from_secs(3 * 24 * 3600);
    std::fs::File::options().append(true).open(&server[0]).unwrap().set_modified(old).unwrap();
    folders.policy.age = Duration::from_secs(24 * 3600);
    let inputs = random_inputs(&mut net, model.plan(), 1);
    assert!(matches!(infer(&model, &folders, &inputs, 1), Err(Error::Units(UnitError::Unknown))));
    assert_eq!(folders.counts(), [0, 0]);
}

/// The identities of units that a server was told to spend, as far as it has heard them.
fn claimed(heard: &[u8], setup: u64) -> Option<Vec<u8>> {
    let at = setup as usize;
    let head = heard.get(at..at + 4)?;
    let (kind, count) = (head[3], usize::from(head[0]));
    let ids: Vec<u8> =
        heard.get(at + 20..)?.chunks(48).take(count).flat_map(|c| &c[..16.min(c.len())]).copied().collect();
    (kind == 2 && ids.len() == 16 * count).then_some(ids)
}

/// A party is cut off after every number of operations; then both start anew on their folders. No unit is announced twice, and what the
/// server has after an announcement is never what was announced.
#[test]
fn no_unit_is_used_twice_wherever_a_party_ends() {
    let mut net = Net::new(24, 31);
    let x = net.input("image", &[6], 4, 15);
    let d = net.dense(x, 3, 4);
    let t = net.truncate(d, 2, "any", false);
    net.open("logits", t);
    let model = model_of(&net);
    let plan = model.plan().clone();
    let folders = Folders::new("cuts");
    let inputs = random_inputs(&mut net, &plan, 1);
    let data = asked(&plan, &inputs, 1);
    let layers = Layers::new(&plan).unwrap();
    let setup = predict(&plan, &layers, OtKind::Iknp, 1).setup.bytes_up;
    let (mut used, mut ended) = (BTreeSet::new(), [0, 0]);
    prepare(&model, &folders, 3);
    // Operations of a session that only opens and ends, and of a whole one, at either party.
    let operations = |images: usize| {
        let cuts = [whole(), whole()];
        let act = |client: &mut TwoPartyClient| match images {
            0 => Ok(()),
            _ => client.infer(&data, &mut |_| ControlFlow::Continue(())).map(drop),
        };
        session(&model, &folders, folders.options(), [&cuts[0], &cuts[1]], act).0 .0.unwrap();
        cuts.map(|c| i64::MAX - c.0.load(Ordering::SeqCst))
    };
    let (opened, all) = (operations(0), operations(1));
    let mut cut = 0;
    for party in [0, 1] {
        // All around the announcement, and some of those behind it.
        let near = opened[party] - 3..opened[party] + 12;
        let far = (near.end..all[party]).step_by(((all[party] - near.end) / 20).max(1) as usize);
        for step in near.chain(far).chain([all[party]]) {
            cut += 1;
            let cuts = [party == 0, party == 1].map(|own| if own { Cut::after(step) } else { whole() });
            let act = |client: &mut TwoPartyClient| client.infer(&data, &mut |_| ControlFlow::Continue(()));
            let ((client, _), heard) =
                session(&model, &folders, folders.options(), [&cuts[0], &cuts[1]], act);
            ended[usize::from(client.is_ok())] += 1;
            if let Some(id) = claimed(&heard[0].0, setup) {
                assert!(
                    used.insert(id),
                    "a unit was announced twice: party {party} ended after {step} steps"
                );
            }
            if folders.counts()[0] == 0 {
                // What one party alone has left goes with time; here at once.
                for file in
                    folders.server.files().iter().filter(|f| f.extension().is_some_and(|e| e == "unit"))
                {
                    std::fs::remove_file(file).unwrap();
                }
                prepare(&model, &folders, 2);
            }
            // A cut preparation leaves nothing that one party would use and the other has not.
            let cuts = [party == 0, party == 1].map(|own| if own { Cut::after(step) } else { whole() });
            let act = |client: &mut TwoPartyClient| client.prepare(1, &mut |_| ControlFlow::Continue(()));
            let before = folders.counts();
            session(&model, &folders, folders.options(), [&cuts[0], &cuts[1]], act).0 .0.ok();
            let after = folders.counts();
            assert!(after[1] - before[1] >= after[0] - before[0], "{before:?} {after:?}");
        }
    }
    // With all of its operations a session ends well, and in front of the last ones at the party that is not cut.
    assert!(ended[1] >= 2 && ended[0] > 30 && used.len() > 30, "{ended:?} of {cut}, {} used", used.len());
}
