//! Exact bytes and rounds of every stage, from the plan alone: what both parties' channels will count.

use super::handshake::{begin_len, Task, HELLO};
use super::methods::Layers;
use super::nonlinear;
use super::plan::TwoPartyPlan;
use super::units::{self, Contents, Parts};
use crate::error::Error;
use crate::plan::{self, Sent};
use hushnet_mpc::{self as mpc, Cost, CostModel, OtKind, PadDemand, Party, SilentSize};
use serde::{Deserialize, Serialize};

/// Bytes and rounds of a phase; up is from the client to the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseCost {
    /// From the client.
    pub bytes_up: u64,
    /// From the server.
    pub bytes_down: u64,
    /// Messages on the longest chain of messages that depend on each other: latency is rounds times the one-way delay.
    pub rounds: u64,
    /// Times that the client turns from sending to receiving.
    pub client_turns: u64,
    /// Times that the server does.
    pub server_turns: u64,
}

impl PhaseCost {
    fn between(before: &Cost, after: &Cost) -> Self {
        Self {
            bytes_up: after.bytes_sent_by_1 - before.bytes_sent_by_1,
            bytes_down: after.bytes_sent_by_0 - before.bytes_sent_by_0,
            rounds: after.rounds - before.rounds,
            client_turns: after.turns[1] - before.turns[1],
            server_turns: after.turns[0] - before.turns[0],
        }
    }

    /// The number of bytes in both directions.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes_up + self.bytes_down
    }
}

impl std::ops::AddAssign for PhaseCost {
    fn add_assign(&mut self, o: Self) {
        self.bytes_up += o.bytes_up;
        self.bytes_down += o.bytes_down;
        self.rounds += o.rounds;
        self.client_turns += o.client_turns;
        self.server_turns += o.server_turns;
    }
}

/// Work of OT extensions in both directions: what their processor time follows from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extensions {
    /// Directions whose extension was started.
    pub starts: u64,
    /// Steps of the running extensions.
    pub steps: u64,
    /// Correlated OTs that the steps made.
    pub made: u64,
    /// Correlated OTs that protocols drew: silent extensions expand them then.
    pub drawn: u64,
}

impl Extensions {
    /// All work of a model so far.
    #[must_use]
    pub fn of(model: &CostModel) -> Self {
        let e = model.extended();
        Self { starts: e.starts, steps: e.steps, made: e.ots, drawn: model.drawn().iter().sum() }
    }

    /// What has been added to an earlier state.
    #[must_use]
    pub fn since(&self, o: &Self) -> Self {
        Self {
            starts: self.starts - o.starts,
            steps: self.steps - o.steps,
            made: self.made - o.made,
            drawn: self.drawn - o.drawn,
        }
    }
}

/// Predicted traffic of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prediction {
    /// Greeting, base OTs, public key.
    pub setup: PhaseCost,
    /// The first group of images, stage by stage.
    pub stages: Vec<PhaseCost>,
    /// What of every stage is OTs that it ensures for later stages: nothing but for linear stages, and stages in front of them.
    pub ahead: Vec<PhaseCost>,
    /// The first group in all, its announcement included.
    pub total: PhaseCost,
    /// Work of the OT extensions in every stage, both directions together.
    pub extensions: Vec<Extensions>,
    /// AND gates garbled in every stage.
    pub gates: Vec<u64>,
    /// Bytes of linear layers and products of matrices in it, without OTs that they ensure for later stages.
    pub he_bytes: u64,
    /// Bytes of everything else in it.
    pub ot_bytes: u64,
    /// The same images with units that were prepared; `None` where nothing can be prepared.
    pub prepared: Option<PreparedPrediction>,
}

/// Predicted traffic of a group of inferences that are prepared, apart from the set-ups of the two sessions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreparedPrediction {
    /// Before the images are known: the exchange that prepares as many units.
    pub offline: PhaseCost,
    /// With the images, the announcement included.
    pub online: PhaseCost,
    /// With the images, stage by stage.
    pub stages: Vec<PhaseCost>,
    /// Work of OT extensions with the images, for protocols that kept pads do not serve.
    pub extensions: Extensions,
    /// Bytes that the server keeps of each unit.
    pub server_bytes: u64,
    /// Bytes that the client keeps of each unit.
    pub client_bytes: u64,
    /// Stages whose ciphertexts travel with the image as ever: what cannot be prepared.
    pub unprepared: Vec<usize>,
}

/// Traffic of so many images that are prepared and then inferred, each in one group; `None` where no stage can be prepared.
fn prepared(plan: &TwoPartyPlan, layers: &Layers, kind: OtKind, images: usize) -> Option<PreparedPrediction> {
    let contents = Contents::new(plan, layers);
    let parts = &contents.parts;
    if parts.bytes() == 0 {
        return None;
    }
    let run = |task| {
        let mut account = Account::new(kind);
        account.setup(layers, &[]);
        let mut total = account.begin(task, images);
        let indices = 0..plan.stages().len();
        let stages: Vec<PhaseCost> = indices.map(|i| account.stage(plan, layers, i, images)).collect();
        stages.iter().for_each(|s| total += *s);
        total += account.end(task, &contents.pads, images);
        (total, stages, Extensions::of(&account.model))
    };
    let (offline, ..) = run(Task::Prepare);
    let (online, stages, extensions) = run(Task::Prepared);
    let unprepared = layers.shapes().map(|(i, _)| i).filter(|i| parts.of(*i).is_none()).collect();
    Some(PreparedPrediction {
        offline,
        online,
        stages,
        extensions,
        server_bytes: units::server::file_bytes(&contents),
        client_bytes: units::client::file_bytes(&contents),
        unprepared,
    })
}

/// Predicts a session that runs one group of `images` images with an OT extension.
#[must_use]
pub fn predict(plan: &TwoPartyPlan, layers: &Layers, kind: OtKind, images: usize) -> Prediction {
    let mut account = Account::new(kind);
    let setup = account.setup(layers, &[]);
    let begin = account.begin(Task::Infer, images);
    let mut extensions = Vec::with_capacity(plan.stages().len());
    let mut gates = Vec::with_capacity(plan.stages().len());
    let (stages, ahead): (Vec<PhaseCost>, Vec<PhaseCost>) = (0..plan.stages().len())
        .map(|i| {
            let (before, garbled) = (Extensions::of(&account.model), account.model.gates());
            let [mut traffic, ahead] = account.parts(plan, layers, i, images);
            extensions.push(Extensions::of(&account.model).since(&before));
            gates.push(account.model.gates() - garbled);
            traffic += ahead;
            (traffic, ahead)
        })
        .unzip();
    let mut total = begin;
    stages.iter().for_each(|s| total += *s);
    let he_bytes = layers.shapes().map(|(i, _)| stages[i].bytes() - ahead[i].bytes()).sum();
    Prediction {
        setup,
        stages,
        ahead,
        total,
        extensions,
        gates,
        he_bytes,
        ot_bytes: total.bytes() - he_bytes,
        prepared: prepared(plan, layers, kind, images),
    }
}

/// A session takes the tiny silent table where its bytes are at most this part above those with the small one.
const TINY_BYTES: u64 = 25;

/// The OT extension for a session of one group of `images` images: SoftSpoken where it sends less than a silent one, as in small sessions. Silent ones
/// read nine entries a row where the medium and the large table read fourteen. The tiny table makes rows in three quarters of the small one's time and
/// sends 0.64 bits an OT more, so that it serves sessions that send little for OTs beside all else.
#[must_use]
pub fn choose(plan: &TwoPartyPlan, layers: &Layers, images: usize) -> OtKind {
    let bytes = |kind: OtKind| {
        let mut account = Account::new(kind);
        let mut total = account.setup(layers, &[]);
        total += account.begin(Task::Infer, images);
        (0..plan.stages().len()).for_each(|i| total += account.stage(plan, layers, i, images));
        total.bytes()
    };
    let [tiny, small] = [SilentSize::Tiny, SilentSize::Small].map(OtKind::Silent);
    let (least, most) = (bytes(small), bytes(tiny));
    let silent = if most <= least + least / TINY_BYTES { tiny } else { small };
    if bytes(OtKind::SoftSpoken) < least.min(most) {
        OtKind::SoftSpoken
    } else {
        silent
    }
}

/// The cost of a session of one group of images, in the terms of all trust models.
///
/// # Errors
/// None for a checked plan but [`Error::Internal`].
pub fn session(plan: &TwoPartyPlan, images: usize) -> Result<plan::Cost, Error> {
    let layers = Layers::new(plan)?;
    let predicted = predict(plan, &layers, choose(plan, &layers, images), images);
    let sent = |t: &PhaseCost| Sent { bytes_up: t.bytes_up, bytes_down: t.bytes_down, rounds: t.rounds };
    Ok(plan::Cost {
        images,
        blocks: 1,
        setup: sent(&predicted.setup),
        stage_setups: vec![Sent::default(); predicted.stages.len()],
        stages: predicted.stages.iter().map(sent).collect(),
        total: sent(&predicted.total),
    })
}

/// Most OTs of a direction that are ensured ahead at once: silent ones, of which only trees' roots lie ready until they are drawn, and others,
/// which lie ready as they are.
const AHEAD: [u64; 2] = [1 << 25, 1 << 18];

/// A running session's prediction.
#[derive(Clone)]
pub(super) struct Account {
    model: CostModel,
    kind: OtKind,
    /// Of the group in work.
    task: Task,
}

impl Account {
    pub(super) fn new(kind: OtKind) -> Self {
        Self { model: CostModel::new(kind), kind, task: Task::Infer }
    }

    /// Whether messages of a linear stage travel in the group in work: ciphertexts, or what the client sends of its share where the stage is prepared.
    fn travels(&self, plan: &TwoPartyPlan, layers: &Layers, index: usize) -> bool {
        layers.shape(index).is_some()
            && (self.task != Task::Prepared
                || !units::prepares(&plan.stages()[index])
                || Parts::new(plan).of(index).is_some_and(|part| part.first))
    }

    /// OTs to ensure at the end of a stage, `[d]` with party d as their sender, and whose messages of them travel there. Those that protocols draw between a
    /// linear stage and the next one are ensured around the first of them: the client's messages go with its request, the server's with its answer, and make
    /// no round of their own.
    pub(super) fn ahead(
        &self,
        plan: &TwoPartyPlan,
        layers: &Layers,
        index: usize,
        images: usize,
    ) -> [([u64; 2], Party); 2] {
        let answered = self.behind(plan, layers, index, images);
        [(answered, Party::Zero), (self.behind(plan, layers, index + 1, images), Party::One)]
    }

    /// OTs that protocols draw behind a stage whose messages travel, up to the next one; none behind others.
    fn behind(&self, plan: &TwoPartyPlan, layers: &Layers, index: usize, images: usize) -> [u64; 2] {
        if self.task == Task::Prepare || !self.travels(plan, layers, index) {
            return [0; 2];
        }
        let mut drawn = CostModel::online(self.kind.default_chunk());
        drawn.supply(self.task == Task::Prepared);
        for next in index + 1..plan.stages().len() {
            if self.travels(plan, layers, next) {
                break;
            }
            if layers.shape(next).is_none() {
                protocol(plan, layers, (next, images), &mut drawn);
            }
        }
        let most = AHEAD[usize::from(!matches!(self.kind, OtKind::Silent(_)))];
        drawn.drawn().map(|n| n.min(most))
    }

    fn count(&mut self, f: impl FnOnce(&mut CostModel)) -> PhaseCost {
        let before = self.model.cost();
        f(&mut self.model);
        PhaseCost::between(&before, &self.model.cost())
    }

    /// The set-up of a session with a client that holds so many bytes of set-ups already, by family.
    pub(super) fn setup(&mut self, layers: &Layers, held: &[usize]) -> PhaseCost {
        self.count(|m| {
            m.message(Party::One, HELLO as u64);
            mpc::setup_cost(m);
            layers.open_cost(m, held);
        })
    }

    /// Bytes from the client in the whole group of so many images that has begun.
    pub(super) fn group_up(
        &self,
        plan: &TwoPartyPlan,
        layers: &Layers,
        pads: &PadDemand,
        images: usize,
    ) -> u64 {
        let mut group = self.clone();
        let stages = (0..plan.stages().len()).map(|index| group.stage(plan, layers, index, images).bytes_up);
        stages.sum::<u64>() + group.end(self.task, pads, images).bytes_up
    }

    /// The announcement of a group, and from now on its stages.
    pub(super) fn begin(&mut self, task: Task, images: usize) -> PhaseCost {
        self.task = task;
        self.model.supply(task == Task::Prepared);
        self.count(|m| m.message(Party::One, begin_len(task, images) as u64))
    }

    /// What ends a group: of one that prepares, the pads of so many units are made, and the server says that it keeps them.
    pub(super) fn end(&mut self, task: Task, pads: &PadDemand, units: usize) -> PhaseCost {
        if task != Task::Prepare {
            return PhaseCost::default();
        }
        self.count(|m| {
            (0..units).for_each(|_| mpc::pads_cost(m, pads));
            m.message(Party::Zero, 1);
        })
    }

    pub(super) fn stage(
        &mut self,
        plan: &TwoPartyPlan,
        layers: &Layers,
        index: usize,
        images: usize,
    ) -> PhaseCost {
        let [mut traffic, ahead] = self.parts(plan, layers, index, images);
        traffic += ahead;
        traffic
    }

    /// A stage's own messages, and those of the OTs that it ensures for later stages.
    fn parts(&mut self, plan: &TwoPartyPlan, layers: &Layers, index: usize, images: usize) -> [PhaseCost; 2] {
        let ahead = self.ahead(plan, layers, index, images);
        let own = match (self.task, units::prepares(&plan.stages()[index])) {
            (Task::Infer, _) | (Task::Prepare, true) | (Task::Prepared, false) => {
                self.count(|m| protocol(plan, layers, (index, images), m))
            }
            (Task::Prepare, false) => PhaseCost::default(),
            (Task::Prepared, true) => {
                let first = Parts::new(plan).of(index).filter(|part| part.first).map(|part| part.input);
                let sent = first.map_or(0, |t| plan.tensors()[t].elements * images);
                self.count(|m| mpc::reveal_cost(m, sent, plan.ring(), Party::Zero))
            }
        };
        [own, self.count(|m| ahead.into_iter().for_each(|(n, speaker)| m.ensure_from(n, speaker)))]
    }
}

/// Pads of one image in all stages but those that units prepare otherwise. Several images together need no more than as many times.
pub(super) fn pads(plan: &TwoPartyPlan, layers: &Layers) -> PadDemand {
    let mut model = CostModel::online(OtKind::SILENT.default_chunk());
    for (index, _) in plan.stages().iter().enumerate().filter(|(_, stage)| !units::prepares(stage)) {
        protocol(plan, layers, (index, 1), &mut model);
    }
    model.pads().clone()
}

/// Adds the messages of a stage, without what is ensured at its end.
fn protocol(plan: &TwoPartyPlan, layers: &Layers, (index, images): (usize, usize), m: &mut CostModel) {
    let stage = &plan.stages()[index];
    let elements = stage.inputs.first().map_or(0, |&t| plan.tensors()[t].elements);
    let results = stage.output.map_or(0, |t| plan.tensors()[t].elements);
    match layers.shape(index) {
        Some(shape) => shape.cost(m, images),
        None => nonlinear::cost(m, stage, (elements, results), plan.ring(), images),
    }
}
