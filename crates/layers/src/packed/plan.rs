//! From a network to a program: layouts and methods by predicted cost.

use super::circuit::{LinearOp, Method, Op, Program, Upload, Value};
use super::composite::Chain;
use super::cost::LevelCost;
use super::diagonals::{Form, Known, Rotations, Split, Sum};
use super::first_layer::{members, pool_first, Copies, Pooling};
use super::layout::{Grid, Layout};
use super::levels::{assign_levels, idle, levels};
use super::machine::depth;
use super::spec::{Linear, Network, Step};
use super::PackedError;
use crate::batch::{Conv2d, Geometry};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What is chosen before layouts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    /// Slots of a ciphertext.
    pub slots: usize,
    /// Special primes, and primes of a digit.
    pub special: usize,
    /// Data primes of a level.
    pub width: usize,
    /// The published layout: one channel a ciphertext, no baby and giant steps, nothing replicated by the client.
    pub channel_wise: bool,
    /// Microseconds that a rotation key counts for.
    pub key_price: f64,
    /// Levels that operations have at most, where bootstraps give new ones.
    pub top: Option<usize>,
}

struct Planner<'a> {
    net: &'a Network,
    choice: Choice,
    need: Vec<usize>,
    pooling: Option<Pooling>,
    placed: BTreeMap<usize, (usize, Layout)>,
    program: Program,
    cost: f64,
    known: RefCell<Known>,
}

type Rotated = (f64, Form, Split, Rotations);

impl Planner<'_> {
    fn at(&self, level: usize) -> LevelCost {
        LevelCost {
            n: 2 * self.choice.slots,
            level: level.clamp(1, self.choice.top.unwrap_or(usize::MAX)) * self.choice.width,
            special: self.choice.special,
            digit: self.choice.special,
        }
    }

    /// The best baby and giant steps for a map between layouts; `None` when the products alone cost more than `limit`.
    fn rotated(&self, map: &Linear, input: &Layout, form: Form, level: usize, limit: f64) -> Option<Rotated> {
        let slots = input.slots();
        let at = self.at(level);
        let block = input.grid.or(form.layout().grid).map_or(1, |g| g.block);
        let offsets = match form {
            Form::Folded { .. } => vec![0],
            Form::Direct(_) if block < 2 => vec![0],
            Form::Direct(_) => vec![block / 2],
        };
        let cols = input.grid.map_or(1, |g| g.cols);
        let folds = form.folds();
        let mut best: Option<(f64, Split, Rotations)> = None;
        for offset in offsets {
            let sets = self.known.borrow_mut().diagonals(map, input, &form, offset);
            let products: usize = sets.iter().map(std::collections::BTreeSet::len).sum();
            if products as f64 * at.product() > limit {
                continue;
            }
            let mut bases = vec![slots];
            if !self.choice.channel_wise {
                bases.extend((0..slots.ilog2()).map(|i| 1 << i));
                bases.extend((0..8).map(|i| cols << i).filter(|b| *b < slots && !b.is_power_of_two()));
            }
            for base in bases {
                let shifts = if base == slots { vec![offset] } else { vec![0, base / 2] };
                for shift in shifts {
                    let split = Split { base, shift, offset };
                    let rotations = Rotations::new(&sets, split);
                    let cost = at.linear(&rotations.work(&folds), self.choice.key_price);
                    if best.as_ref().is_none_or(|b| cost < b.0) {
                        best = Some((cost, split, rotations));
                    }
                }
            }
        }
        let (cost, split, rotations) = best?;
        Some((cost, form, split, rotations))
    }

    /// Layouts for the output of a linear step, given its input's layout where there is one.
    fn layouts(&self, step: usize, input: Option<&Layout>) -> Vec<Layout> {
        let Step::Linear { output, map, .. } = &self.net.steps[step] else { return Vec::new() };
        let slots = self.choice.slots;
        if let Some(forced) = self.partner(*output) {
            return vec![forced];
        }
        let limit = usize::from(self.choice.channel_wise);
        let mut out = Vec::new();
        let chw = match &map.geometry {
            Geometry::Conv2d(c) => c.output,
            Geometry::Dense(_) => self.net.tensors[*output].chw(),
        };
        if let (Geometry::Conv2d(c), Some(grid)) = (&map.geometry, input.and_then(|l| l.grid)) {
            let gap = [grid.gap[0] * c.stride[0], grid.gap[1] * c.stride[1]];
            // Bootstraps are cheaper for values of few slots.
            let dense = self.choice.top.is_some();
            out.extend(Layout::on_grid(slots, chw, Grid { gap, dense, ..grid }));
        }
        let spatial = chw[1] * chw[2] > 1;
        if spatial && (out.is_empty() || !self.choice.channel_wise) {
            out.extend(Layout::on_grid(slots, chw, Grid::compact(chw[1], chw[2], limit)));
        }
        if !spatial || out.is_empty() {
            out.push(Layout::flat(slots, chw.iter().product()));
        }
        out.dedup();
        out
    }

    /// The layout that an addition asks of a tensor: its other operand's, through polynomials.
    fn partner(&self, mut tensor: usize) -> Option<Layout> {
        loop {
            tensor = self.net.behind_products(tensor);
            let consumers = self.net.consumers(tensor);
            for &s in &consumers {
                if let Step::Add { inputs: [a, b], .. } = &self.net.steps[s] {
                    let other = if *a == tensor { *b } else { *a };
                    if let Some((_, layout)) = self.placed.get(&other) {
                        return Some(layout.clone());
                    }
                }
            }
            match consumers.as_slice() {
                [one] => match &self.net.steps[*one] {
                    Step::Polynomial { output, .. } => tensor = *output,
                    _ => return None,
                },
                _ => return None,
            }
        }
    }

    /// Forms of a linear step's result.
    fn forms(&self, step: usize, input: &Layout) -> Vec<Form> {
        let Step::Linear { output, .. } = &self.net.steps[step] else { return Vec::new() };
        let mut forms: Vec<Form> = self.layouts(step, Some(input)).into_iter().map(Form::Direct).collect();
        let outputs = self.net.tensors[*output].len();
        let least = outputs.next_power_of_two();
        if self.partner(*output).is_none() && self.net.tensors[*output].chw()[1..] == [1, 1] {
            let moduli =
                std::iter::successors(Some(least), |m| Some(m * 2)).take_while(|m| *m < input.period);
            for modulus in moduli.take(if self.choice.channel_wise { 1 } else { 4 }) {
                let mut layout = Layout::flat(self.choice.slots, outputs);
                if modulus > least {
                    layout = Layout::padded(self.choice.slots, outputs, modulus);
                }
                forms.push(Form::Folded { layout, modulus, span: input.period });
            }
        }
        forms
    }

    /// The least cost of the linear step that reads `tensor` next (through polynomials), were it laid out so.
    fn ahead(&self, mut tensor: usize, layout: &Layout) -> f64 {
        loop {
            tensor = self.net.behind_products(tensor);
            match self.net.consumers(tensor).as_slice() {
                [one] => match &self.net.steps[*one] {
                    Step::Polynomial { output, .. } => tensor = *output,
                    Step::Linear { map, .. } => {
                        let mut least = f64::INFINITY;
                        for form in self.forms(*one, layout) {
                            let found = self.rotated(map, layout, form, self.need[tensor], least);
                            least = found.map_or(least, |f| f.0.min(least));
                        }
                        return least;
                    }
                    Step::Add { .. } | Step::Multiply { .. } => return 0.0,
                },
                _ => return 0.0,
            }
        }
    }

    fn value(&mut self, tensor: usize, cts: usize, period: usize) -> usize {
        let t = &self.net.tensors[tensor];
        let (name, bound, usual) = (t.name.clone(), t.bound, t.usual);
        let value = Value { name, bound, usual, level: 0, uses: 0, cts, period, idle: 0.0 };
        self.program.values.push(value);
        self.program.values.len() - 1
    }

    /// The input in a layout of its own.
    fn upload(&mut self, layout: &Layout) -> usize {
        let value = self.value(self.net.input, layout.cts.len(), layout.period);
        let uploads = layout.cts.iter().map(|slots| Upload { value, slots: slots.clone() });
        self.program.uploads.extend(uploads);
        value
    }

    fn linear(&mut self, step: usize) -> Result<(), PackedError> {
        let Step::Linear { input, output, map } = &self.net.steps[step] else { return Ok(()) };
        let level = self.need[*input];
        let known = self.placed.get(input).cloned();
        let from_client = *input == self.net.input;
        let mut sources: Vec<Layout> = known.iter().map(|k| k.1.clone()).collect();
        if from_client {
            sources = self.client_layouts(map);
        }
        let lookahead =
            |p: &Self, layout: &Layout| if p.choice.channel_wise { 0.0 } else { p.ahead(*output, layout) };
        let pooled = self.pooling.as_ref().is_some_and(|p| p.first == step);
        let mut best: Option<(f64, f64, Layout, Rotated)> = None;
        for source in sources.iter().filter(|_| !pooled) {
            let send = if from_client { source.cts.len() as f64 * self.at(level).encryption() } else { 0.0 };
            for form in self.forms(step, source) {
                let total = send + lookahead(self, form.layout());
                let limit = best.as_ref().map_or(f64::INFINITY, |b| b.0 - total);
                let Some(found) = self.rotated(map, source, form, level, limit) else { continue };
                if best.as_ref().is_none_or(|b| total + found.0 < b.0) {
                    best = Some((total + found.0, send + found.0, source.clone(), found));
                }
            }
        }
        self.known.get_mut().forget(map);
        if from_client && !self.choice.channel_wise {
            let limit = best.as_ref().map_or(f64::INFINITY, |b| b.0);
            if self.replicated(step, limit) {
                return Ok(());
            }
        }
        let Some((_, cost, source, (_, form, split, rotations))) = best else {
            return Err(PackedError::Step {
                step: self.net.names[step].clone(),
                why: "no layout fits it".into(),
            });
        };
        self.cost += cost;
        let value = if from_client { self.upload(&source) } else { known.map_or(0, |k| k.0) };
        let layout = form.layout().clone();
        let target = self.value(*output, layout.cts.len(), layout.period);
        self.placed.insert(*output, (target, layout));
        let folds = form.folds();
        self.program.ops.push(Op::Linear(Box::new(LinearOp {
            name: self.net.names[step].clone(),
            input: value,
            output: target,
            method: Method::Rotate { input: source, form, split },
            rotations,
            folds,
            ..LinearOp::new(map.clone())
        })));
        Ok(())
    }

    /// Layouts that the client may send for a map that rotates.
    fn client_layouts(&self, map: &Linear) -> Vec<Layout> {
        let slots = self.choice.slots;
        let chw = match &map.geometry {
            Geometry::Conv2d(c) => c.input,
            Geometry::Dense(_) => self.net.tensors[self.net.input].chw(),
        };
        let mut out = Vec::new();
        if chw[1] * chw[2] > 1 {
            let limit = usize::from(self.choice.channel_wise);
            out.extend(Layout::on_grid(slots, chw, Grid::compact(chw[1], chw[2], limit)));
        }
        if out.is_empty() || matches!(map.geometry, Geometry::Dense(_)) {
            out.push(Layout::flat(slots, chw.iter().product()));
        }
        out
    }

    /// The first layer on copies that the client makes, if that costs less than `limit`.
    fn replicated(&mut self, step: usize, limit: f64) -> bool {
        let Step::Linear { input, output, map } = &self.net.steps[step] else { return false };
        let (slots, level) = (self.choice.slots, self.need[*input]);
        let pooling = self.pooling.clone().filter(|p| p.first == step);
        let layouts = match &pooling {
            None => self.layouts(step, None),
            Some(p) => {
                let Step::Polynomial { output, .. } = &self.net.steps[p.polynomial] else { return false };
                let chw = self.net.tensors[*output].chw();
                Layout::on_grid(slots, chw, Grid::compact(chw[1], chw[2], 0)).into_iter().collect()
            }
        };
        let next = pooling.as_ref().map_or(*output, |p| self.net.steps[p.polynomial].output());
        let mut best: Option<(f64, f64, Copies, Layout)> = None;
        for layout in layouts {
            let outputs = members(map, &layout, pooling.as_ref());
            let ahead = self.ahead(next, &layout);
            let mut copies = 1;
            while copies * layout.period <= slots && copies <= map.taps().next_power_of_two() {
                // Each copy of an output is encrypted and multiplied: refuse what is far too much.
                let uploads = map.taps().div_ceil(copies) * outputs.len();
                if uploads <= 4096 {
                    let made = Copies::new(map, &outputs, slots, copies);
                    let at = self.at(level);
                    let below = self.at(level - 1);
                    let products: usize = made.terms.iter().map(Vec::len).sum();
                    let folds = copies.ilog2() as usize * outputs.len();
                    let cost = made.uploads.len() as f64 * at.encryption()
                        + products as f64 * at.product()
                        + folds as f64 * below.rotation();
                    let total = cost + ahead;
                    if total < limit && best.as_ref().is_none_or(|b| total < b.0) {
                        best = Some((total, cost, made, layout.clone()));
                    }
                }
                copies *= 2;
            }
        }
        let Some((_, cost, made, layout)) = best else { return false };
        self.cost += cost;
        let value = self.value(*input, made.uploads.len(), slots);
        let target = self.value(*output, made.outputs.len(), layout.period);
        self.program.uploads.extend(made.uploads.into_iter().map(|slots| Upload { value, slots }));
        let sums = made.terms.into_iter().map(|terms| vec![Sum { giant: 0, terms }]).collect();
        let count = self.program.values[value].cts as u32;
        let folds = (0..made.copies.ilog2()).map(|i| ((slots / made.copies) << i) as i64).collect();
        self.placed.insert(*output, (target, layout.clone()));
        self.program.ops.push(Op::Linear(Box::new(LinearOp {
            name: self.net.names[step].clone(),
            input: value,
            output: target,
            method: Method::Replicated { outputs: made.outputs, copies: made.copies, layout },
            rotations: Rotations { inputs: (0..count).map(|i| (i, 0)).collect(), outputs: sums },
            folds,
            ..LinearOp::new(map.clone())
        })));
        true
    }

    /// The value and layout of a tensor that is not a linear step's input; the client sends the input as it is.
    fn place(&mut self, tensor: usize) -> (usize, Layout) {
        if let Some(known) = self.placed.get(&tensor) {
            return known.clone();
        }
        let layout = match self.net.tensors[tensor].chw() {
            [c, h, w] if h * w > 1 => {
                let limit = usize::from(self.choice.channel_wise);
                Layout::on_grid(self.choice.slots, [c, h, w], Grid::compact(h, w, limit))
            }
            _ => None,
        };
        let layout =
            layout.unwrap_or_else(|| Layout::flat(self.choice.slots, self.net.tensors[tensor].len()));
        let value = self.upload(&layout);
        self.placed.insert(tensor, (value, layout.clone()));
        (value, layout)
    }

    /// The tensor in another layout, by the identity map.
    fn moved(
        &mut self,
        tensor: usize,
        value: usize,
        from: &Layout,
        to: &Layout,
    ) -> Result<usize, PackedError> {
        let elements = self.net.tensors[tensor].len();
        let geometry = Geometry::conv2d(Conv2d {
            input: [elements, 1, 1],
            output: [elements, 1, 1],
            kernel: [1, 1],
            stride: [1, 1],
            pads: [0; 4],
            dilation: [1, 1],
            groups: elements,
        })?;
        let weights = Arc::new(vec![1.0; elements]);
        let map = Linear { geometry, weights, bias: Arc::new(Vec::new()), every: false };
        let form = Form::Direct(to.clone());
        let Some(found) = self.rotated(&map, from, form, self.need[tensor], f64::INFINITY) else {
            return Err(PackedError::Spec("no layout fits a sum".into()));
        };
        self.known.get_mut().forget(&map);
        self.cost += found.0;
        let target = self.value(tensor, to.cts.len(), to.period);
        self.program.ops.push(Op::Linear(Box::new(LinearOp {
            name: format!("{} in another layout", self.net.tensors[tensor].name),
            input: value,
            output: target,
            method: Method::Rotate { input: from.clone(), form: found.1, split: found.2 },
            rotations: found.3,
            ..LinearOp::new(map)
        })));
        Ok(target)
    }

    fn step(&mut self, at: usize) -> Result<(), PackedError> {
        let name = self.net.names[at].clone();
        if self.need[self.net.steps[at].output()] == 0 {
            return Ok(());
        }
        match &self.net.steps[at] {
            Step::Linear { .. } => self.linear(at),
            Step::Polynomial { input, output, coefficients, .. } => {
                let (value, layout) = self.place(*input);
                let members = match &self.pooling {
                    Some(p) if p.polynomial == at => p.window[0] * p.window[1],
                    _ => 1,
                };
                let cts = self.program.values[value].cts / members;
                let target = self.value(*output, cts, layout.period);
                let work = (depth(coefficients) * (members - 1) / 2 * cts + depth(coefficients) * cts) as f64;
                self.cost += work * self.at(self.need[*input]).relinearise();
                self.placed.insert(*output, (target, layout));
                let coefficients = coefficients.clone();
                self.program.ops.push(Op::Polynomial {
                    name,
                    input: value,
                    output: target,
                    members,
                    coefficients,
                    slope: None,
                });
                Ok(())
            }
            step @ Step::Multiply { inputs: [a, b], output, constant } => {
                let ((first, layout), (second, _)) = (self.place(*a), self.place(*b));
                let target = self.value(*output, layout.cts.len(), layout.period);
                self.cost += layout.cts.len() as f64 * self.at(self.need[*a]).relinearise();
                self.placed.insert(*output, (target, layout));
                let Some(chain) = Chain::of(self.net, step) else {
                    return Err(PackedError::Step { step: name, why: "its factors are no chain".into() });
                };
                let slopes = chain.slopes();
                for (at, own) in chain.steps.iter().zip(&slopes.polynomials) {
                    let (value, _) = self.place(self.net.steps[*at].output());
                    for op in &mut self.program.ops {
                        match op {
                            Op::Polynomial { output, slope, .. } if *output == value => *slope = Some(*own),
                            _ => (),
                        }
                    }
                }
                let inputs = [first, second];
                let (slope, constant) = (slopes.product, *constant);
                self.program.ops.push(Op::Multiply { name, inputs, output: target, slope, constant });
                Ok(())
            }
            Step::Add { inputs, output } => {
                // The client sends the input in the other operand's layout.
                for i in 0..2 {
                    if inputs[i] == self.net.input && !self.placed.contains_key(&inputs[i]) {
                        if let Some((_, layout)) = self.placed.get(&inputs[1 - i]).cloned() {
                            let value = self.upload(&layout);
                            self.placed.insert(inputs[i], (value, layout));
                        }
                    }
                }
                let (a, layout) = self.place(inputs[0]);
                let (mut b, other) = self.place(inputs[1]);
                if other.cts != layout.cts {
                    b = self.moved(inputs[1], b, &other, &layout)?;
                }
                let target = self.value(*output, layout.cts.len(), layout.period);
                self.placed.insert(*output, (target, layout));
                self.program.ops.push(Op::Add { name, inputs: [a, b], output: target });
                Ok(())
            }
        }
    }
}

/// A program, its predicted microseconds, and the levels that every step spends.
pub(super) type Planned = (Program, f64, Vec<(String, usize)>);

/// A program for a network.
///
/// # Errors
/// [`PackedError::Step`] when no layout fits.
pub(super) fn plan(net: &Network, choice: Choice, scale: f64) -> Result<Planned, PackedError> {
    if choice.channel_wise {
        return plan_one(net, None, choice, scale);
    }
    let pooled = pool_first(net)
        .and_then(|(rewritten, pooling)| plan_one(&rewritten, Some(pooling), choice, scale).ok());
    match pooled {
        // Few copies: the window's sums come for nothing, so nothing else can be cheaper.
        Some(p) if p.0.uploads.len() <= 64 => Ok(p),
        Some(p) => plan_one(net, None, choice, scale).map(|plain| if p.1 < plain.1 { p } else { plain }),
        None => plan_one(net, None, choice, scale),
    }
}

fn plan_one(
    net: &Network,
    pooling: Option<Pooling>,
    choice: Choice,
    scale: f64,
) -> Result<Planned, PackedError> {
    let program = Program {
        values: Vec::new(),
        ops: Vec::new(),
        uploads: Vec::new(),
        output: 0,
        output_layout: Layout::flat(choice.slots, 1),
        scale,
        slots: choice.slots,
        width: choice.width,
    };
    let mut planner = Planner {
        net,
        choice,
        need: levels(net),
        pooling,
        placed: BTreeMap::new(),
        program,
        cost: 0.0,
        known: RefCell::default(),
    };
    for at in 0..net.steps.len() {
        planner.step(at)?;
    }
    let (output, layout) = planner.place(net.output);
    let mut program = planner.program;
    program.output = output;
    program.output_layout = layout;
    idle(&mut program);
    let spent = assign_levels(&mut program, 1, 1);
    Ok((program, planner.cost, spent))
}
