//! The recorder itself: what it must find, and what it must let pass.

use super::{assert_found, lacking, recorded};
use hushnet_ring::ledger::{self, Kind, Recording, Tag, ENTROPY, GENERATOR};
use hushnet_ring::{sample, Prg};

const TEST: Kind = Kind("of this test");

#[test]
fn this_build_records() {
    const { assert!(ledger::ON) };
}

#[test]
fn a_recorder_that_records_nothing_fails() {
    let ((), report) = recorded(|| ());
    assert_eq!(lacking(&report, &[(GENERATOR, 1), (ENTROPY, 1)]).len(), 2);
    let ((), report) = recorded(|| Prg::from_os().unwrap().fill_bytes(&mut [0; 16]));
    assert!(lacking(&report, &[(GENERATOR, 1), (ENTROPY, 1)]).is_empty());
    assert_eq!(lacking(&report, &[(GENERATOR, 1), (TEST, 1)]).len(), 1);
}

/// A generator that begins again, overlaps in part, or shares its seed with one of the other crate.
#[test]
fn a_generator_that_is_reset_is_found() {
    let mut words = [0; 100];
    let mut long = [0i8; 300];
    let ((), report) = recorded(|| {
        let mut first = Prg::from_seed([1; 16]);
        first.fill_words(&mut words);
        sample::ternary(&mut first, &mut long);
        sample::centred_binomial(&mut first, &mut long);
        Prg::from_seed([2; 16]).fill_words(&mut words);
    });
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    for again in [1, 100] {
        let ((), report) = recorded(|| {
            Prg::from_seed([1; 16]).fill_words(&mut words);
            Prg::from_seed([1; 16]).fill_words(&mut words[..again]);
        });
        assert_found("the same seed", &report, &[GENERATOR]);
    }
    let ((), report) = recorded(|| {
        Prg::from_seed([3; 16]).fill_words(&mut words);
        hushnet_mpc::Prg::new(u128::from_le_bytes([3; 16])).words(&mut words[..2]);
    });
    assert_found("a seed in two crates", &report, &[GENERATOR]);
    let ((), report) =
        recorded(|| (0..2).for_each(|_| Prg::from_seed([4; 16]).untracked().fill_words(&mut words)));
    assert!(report.findings.is_empty() && report.uses.is_empty());
}

#[test]
fn counters_of_one_key_must_not_overlap() {
    for (ranges, good) in [
        (&[(0u128, 10u64), (10, 5), (15, 1)][..], true),
        (&[(10, 5), (0, 10)], true),
        (&[(0, 10), (9, 1)], false),
        (&[(0, 10), (20, 5), (10, 11)], false),
        (&[(0, 0), (0, 1)], true),
    ] {
        let ((), report) = recorded(|| {
            ranges.iter().for_each(|(first, n)| ledger::Stream::new(TEST, &[7]).take(*first, *n));
        });
        assert_eq!(report.findings.is_empty(), good, "{ranges:?}: {:?}", report.findings);
    }
}

#[test]
fn the_same_identity_may_come_again_with_the_same_content_only() {
    for (content, good) in [([1, 2], true), ([1, 3], false)] {
        let ((), report) = recorded(|| {
            ledger::same(TEST, &[Tag::number(1)], Tag::words(&[1, 2]));
            ledger::same(TEST, &[Tag::number(2)], Tag::words(&[9, 9]));
            ledger::same(TEST, &[Tag::number(1)], Tag::words(&content));
        });
        assert_eq!(report.findings.is_empty(), good, "{:?}", report.findings);
    }
    let ((), report) = recorded(|| (0..2).for_each(|_| ledger::once(TEST, &[Tag::number(1)])));
    assert_found("once", &report, &[TEST]);
    let ((), report) = recorded(|| ledger::words(TEST, &mut [1, 2, 3, 2]));
    assert_found("a word", &report, &[TEST]);
}

#[test]
fn a_planted_failure_changes_what_the_program_goes_on_with() {
    let recording = Recording::start().plant(TEST, 1..2);
    let mut values = [[1u64, 2], [3, 4], [5, 6]];
    values.iter_mut().for_each(|v| ledger::words(TEST, v));
    assert_eq!(values, [[1, 2], [1, 2], [5, 6]]);
    let report = recording.finish();
    assert_eq!(report.findings.len(), 2);
    assert_found("planted", &report, &[TEST]);
}
