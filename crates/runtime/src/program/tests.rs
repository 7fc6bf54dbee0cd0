//! Operations without operands stop; they never compute from zeros.

use super::operands::OperandError;
use super::values::{Data, InputData, InputView, Slot, Values};

use super::compile::{Register, RowProgram, Step};
use super::rows::run_rows;
use super::{whole, Monitor, Moves, Overruns, Place};
use crate::error::Error;
use crate::plan::{Op, OpKind, Tensor, TensorKind};

const IMAGES: usize = 2;

fn tensor(name: &str, shape: &[usize], kind: TensorKind) -> Tensor {
    Tensor { id: 0, name: name.into(), shape: shape.to_vec(), elements: shape.iter().product(), kind }
}

/// Tensors x, y and z = op(x, y); x and y of shape [1, 2, 2], z as given.
fn tensors(shape: &[usize]) -> Vec<Tensor> {
    let real = |name, shape: &[usize]| tensor(name, shape, TensorKind::Real);
    vec![real("x", &[1, 2, 2]), real("y", &[1, 2, 2]), real("z", shape)]
}

fn op(kind: OpKind, inputs: &[usize]) -> Op {
    Op { kind, inputs: inputs.to_vec(), output: 2 }
}

fn run(op: &Op, tensors: &[Tensor], values: &mut Values<'_>) -> Result<Monitor, OperandError> {
    let monitor = Monitor::new(tensors.len(), IMAGES);
    whole::run(op, tensors, values, &monitor).map(|()| monitor)
}

/// Where every element of a moving operation's result comes from.
fn sources(
    kind: &OpKind,
    inputs: &[&Tensor],
    output: &Tensor,
) -> Result<Vec<Option<(usize, usize)>>, OperandError> {
    let moves = Moves::new(kind, inputs, output)?;
    let mut all = Vec::new();
    moves.for_each(|s| all.push(s));
    Ok(all)
}

/// x holds 1 to 8; y holds nothing.
fn x_only() -> Values<'static> {
    let mut values = Values::new(3, IMAGES);
    values.put(0, Data::Real((1..=8).map(f64::from).collect()));
    values
}

#[test]
fn an_operand_without_values_is_an_error_and_no_zeros() {
    let concat = op(OpKind::Concat { axis: 0 }, &[0, 1]);
    let absent = OperandError::Absent { output: "z".into(), operand: "y".into() };
    let (tensors_of_concat, mut values) = (tensors(&[2, 2, 2]), x_only());
    assert_eq!(run(&concat, &tensors_of_concat, &mut values).err(), Some(absent.clone()));
    assert!(values.data(2).is_none(), "nothing is stored for the tensor");
    let Error::Internal(text) = Error::from(absent) else { panic!("an error of this program") };
    assert!(text.contains("'z'") && text.contains("'y'"), "{text}");
    // With its operand, the same operation gives all of its values.
    values.put(1, Data::Real((9..=16).map(f64::from).collect()));
    assert!(run(&concat, &tensors_of_concat, &mut values).is_ok());
    let Some(Data::Real(z)) = values.data(2) else { panic!("z is real") };
    assert_eq!(z, &(1..=16).map(f64::from).collect::<Vec<_>>());
    // Every operation that needs whole tensors, of a tensor without values.
    let pool = |k: usize| (vec![k, k], vec![1, 1], vec![0, 0, 0, 0]);
    let ((kernel, stride, pads), one) = (pool(2), vec![1, 1]);
    let kinds = [
        (OpKind::Transpose { perm: vec![0, 2, 1] }, &[1, 2, 2][..]),
        (OpKind::Reshape {}, &[1, 2, 2]),
        (OpKind::Broadcast {}, &[1, 2, 2]),
        (OpKind::Pad { pads: vec![0; 6], value: 0.0 }, &[1, 2, 2]),
        (OpKind::Softmax { axis: 0 }, &[1, 2, 2]),
        (OpKind::ReduceMean { axes: vec![1, 2] }, &[1]),
        (
            OpKind::MaxPool {
                kernel: kernel.clone(),
                stride: stride.clone(),
                pads: pads.clone(),
                dilation: one,
            },
            &[1, 1, 1],
        ),
        (OpKind::AveragePool { kernel, stride, pads, count_include_pad: false }, &[1, 1, 1]),
    ];
    for (kind, shape) in kinds {
        let name = format!("{kind:?}");
        let found = run(&op(kind, &[1]), &tensors(shape), &mut x_only()).err();
        assert!(matches!(found, Some(OperandError::Absent { .. })), "{name}: {found:?}");
    }
}

#[test]
fn integers_where_real_numbers_are_taken_are_an_error() {
    let mut values = x_only();
    values.put(1, Data::I32(vec![1; 8]));
    let integers = OperandError::Integers { output: "z".into(), operand: "y".into() };
    for (kind, shape) in
        [(OpKind::Softmax { axis: 0 }, &[1, 2, 2][..]), (OpKind::ReduceSum { axes: vec![1, 2] }, &[1])]
    {
        assert_eq!(run(&op(kind, &[1]), &tensors(shape), &mut values).err(), Some(integers.clone()));
    }
}

#[test]
fn a_slice_outside_of_its_operand_is_an_error() {
    let slice =
        |start, step| OpKind::Slice { starts: vec![start], ends: vec![2], steps: vec![step], axes: vec![1] };
    let tensors = tensors(&[1, 1, 2]);
    for (start, step) in [(-1, 1), (2, 1), (i64::MIN, 1), (0, 0)] {
        let found = sources(&slice(start, step), &[&tensors[0]], &tensors[2]).err();
        assert!(
            matches!(&found, Some(OperandError::Slice { size: 2, start: s, step: t, .. }) if (*s, *t) == (start, step)),
            "{start}, {step}: {found:?}"
        );
        let run = run(&op(slice(start, step), &[0]), &tensors, &mut x_only()).err();
        assert_eq!(run, found);
    }
    let found = sources(&slice(1, 1), &[&tensors[0]], &tensors[2]);
    assert_eq!(found, Ok(vec![Some((0, 2)), Some((0, 3))]));
    // A step beyond the axis is never taken, however long it is.
    let one = Tensor { shape: vec![1, 1, 2], ..tensors[2].clone() };
    let far = OpKind::Slice { starts: vec![1], ends: vec![2], steps: vec![i64::MAX], axes: vec![1] };
    assert_eq!(sources(&far, &[&tensors[0]], &one), Ok(vec![Some((0, 2)), Some((0, 3))]));
    let computes = sources(&OpKind::Relu {}, &[&tensors[0]], &tensors[2]);
    assert_eq!(computes, Err(OperandError::NoMove { output: "z".into() }));
}

#[test]
fn inputs_are_checked_where_an_operation_takes_them_whole() {
    let numbers = [0.0, 1.0, f64::NAN, 3.0, 4.0, 5.0, 6.0, 7.0];
    let tensors = tensors(&[1]);
    let sum = op(OpKind::ReduceMax { axes: vec![1, 2] }, &[0]);
    let mut values = Values::new(3, IMAGES);
    values.slots[0] = Slot::Input(InputView { data: InputData::F64(&numbers), first: 0, features: 4 });
    let Ok(monitor) = run(&sum, &tensors, &mut values) else { panic!("the operation runs") };
    let place = Place { stage: "stage", tensor: 0, named: 0, bound: None, answer: false };
    let overruns = Overruns::of(&[(0, monitor)], &tensors, &[place]);
    let Some(fault) = overruns.error() else { panic!("an input that is no number passed") };
    assert_eq!((fault.tensor.as_str(), fault.image, fault.element), ("x", 0, 2));
}

#[test]
fn strided_copies_are_those_of_their_elements() {
    let transpose = |perm: &[usize]| OpKind::Transpose { perm: perm.to_vec() };
    let slice = |starts: &[i64], ends: &[i64], steps: &[i64]| OpKind::Slice {
        starts: starts.to_vec(),
        ends: ends.to_vec(),
        steps: steps.to_vec(),
        axes: (0..starts.len()).collect(),
    };
    let cases: [(OpKind, &[usize], &[usize]); 10] = [
        (transpose(&[2, 0, 1]), &[3, 4, 5], &[5, 3, 4]),
        (transpose(&[0, 2, 1]), &[3, 4, 5], &[3, 5, 4]),
        (transpose(&[1, 0, 2]), &[1, 4, 5], &[4, 1, 5]),
        (OpKind::Broadcast {}, &[4, 1], &[3, 4, 5]),
        (OpKind::Broadcast {}, &[5], &[2, 1, 5]),
        (OpKind::Broadcast {}, &[1], &[2, 3]),
        (slice(&[1, 0], &[3, 5], &[1, 2]), &[4, 5], &[2, 3]),
        (slice(&[3, 4], &[-5, 0], &[-2, -1]), &[4, 5], &[2, 4]),
        (slice(&[1, 0], &[3, 5], &[1, 1]), &[4, 5], &[2, 5]),
        (OpKind::Reshape {}, &[4, 5], &[2, 10]),
    ];
    for (kind, from, to) in cases {
        let real = |name, shape: &[usize]| tensor(name, shape, TensorKind::Real);
        let tensors = [real("x", from), real("y", from), real("z", to)];
        let found = sources(&kind, &[&tensors[0]], &tensors[2]).unwrap();
        for images in [1, 3] {
            let x: Vec<f64> = (0..tensors[0].elements * images).map(|i| i as f64).collect();
            let expected: Vec<f64> =
                found.iter().flat_map(|s| x[s.unwrap().1 * images..][..images].to_vec()).collect();
            let mut values = Values::new(3, images);
            values.put(0, Data::Real(x));
            let monitor = Monitor::new(3, images);
            whole::run(&op(kind.clone(), &[0]), &tensors, &mut values, &monitor).unwrap();
            let Some(Data::Real(z)) = values.data(2) else { panic!("z is real") };
            assert_eq!(z, &expected, "{kind:?} {images}");
        }
    }
}

#[test]
fn tensors_of_few_images_are_worked_on_in_pieces_with_the_same_marks() {
    // More than two pieces of one image, a part of one, and rows that the pieces cut.
    let features = 20_011;
    let fixed = TensorKind::Fixed { scale: 0.5, bound: 100 };
    let tensors = [tensor("x", &[features], TensorKind::Real), tensor("z", &[features], fixed)];
    let step = Step {
        kind: OpKind::Quantize {},
        inputs: vec![Register::Real(0)],
        output: Register::Fixed(0),
        tensor: 1,
        fixed: Some((0.5, 100)),
        channel: 1,
    };
    let program = RowProgram {
        features,
        real_registers: 1,
        fixed_registers: 1,
        loads: vec![(0, Register::Real(0))],
        steps: vec![step],
        stores: vec![(1, Register::Fixed(0))],
    };
    for images in [1, 3, 600] {
        let (wrong, also) = ((12_345, images - 1), (19_999, images / 2));
        let mut x: Vec<f64> = (0..features * images).map(|i| (i % 83) as f64 - 41.0).collect();
        for (feature, image) in [wrong, also] {
            x[feature * images + image] = 77.0;
        }
        let expected: Vec<i64> = x.iter().map(|v| (2.0 * v).min(100.0) as i64).collect();
        let mut values = Values::new(2, images);
        values.put(0, Data::Real(x));
        let monitor = Monitor::new(2, images);
        run_rows(&program, &tensors, &mut values, &monitor);
        let Some(Data::I16(z)) = values.data(1) else { panic!("z takes 16 bits") };
        assert!(z.iter().map(|&v| i64::from(v)).eq(expected), "{images}");
        assert_eq!(monitor.largest(1), 154);
        let place = Place { stage: "stage", tensor: 1, named: 1, bound: None, answer: false };
        let fault = Overruns::of(&[(0, monitor)], &tensors, &[place]).error().unwrap();
        assert_eq!((fault.element, fault.image, fault.value, fault.values), (wrong.0, wrong.1, 77.0, 2));
        let mut affected = vec![wrong.1, also.1];
        affected.sort_unstable();
        affected.dedup();
        assert_eq!(fault.affected, affected);
    }
}
