//! Plans that mean harm: every number, list and string of a plan of every trust model replaced by others, and plans that are consistent
//! but ask for too much. Each is refused by a typed error or accepted, and then a client's set-up of it is bounded: within the limit of memory
//! and a margin, which a counting allocator watches, and within a second of processor time.
#![allow(clippy::unwrap_used)]
#![allow(unsafe_code, reason = "an allocator that counts")]

#[path = "../../src/two_party/tests/builder.rs"]
mod builder;
#[path = "../common/mod.rs"]
mod common;
mod corpus;

use corpus::{Case, Files};
use hushnet_runtime::channel::{pipe, Channel};
use hushnet_runtime::non_interactive::NonInteractivePlan;
use hushnet_runtime::plan::{Plan, PlanError, TensorBytes};
use hushnet_runtime::two_party::{TwoPartyOptions, TwoPartyPlan};
use hushnet_runtime::wire::{FrameBuilder, Kind};
use hushnet_runtime::{ClientOptions, Error, PlanOptions};
use serde_json::{json, Value};
use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What clients of these tests may take for a plan.
const LIMIT: usize = 256 << 20;
/// What the process may take beyond: the plan itself, threads, messages.
const MARGIN: usize = 64 << 20;
/// Processor time for a plan: to refuse it, or to accept it and set up a client.
const SECOND: Duration = Duration::from_secs(1);
/// Time on the clock, on a machine that has much else to do.
const PATIENCE: Duration = Duration::from_secs(60);

struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
/// No case may take more than this: the allocation fails, which ends the process, instead of filling the machine.
static CEILING: AtomicUsize = AtomicUsize::new(usize::MAX);
/// What is being tried, for the message when the ceiling is reached.
static CURRENT: Mutex<String> = Mutex::new(String::new());
/// Tests share the counter, so one runs at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn took(bytes: usize) -> bool {
    let now = IN_USE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(now, Ordering::Relaxed);
    if now > CEILING.load(Ordering::Relaxed) {
        CEILING.store(usize::MAX, Ordering::Relaxed);
        if let Ok(current) = CURRENT.try_lock() {
            let _ = std::io::stderr().write_all(current.as_bytes());
        }
        IN_USE.fetch_sub(bytes, Ordering::Relaxed);
        return false;
    }
    true
}

// SAFETY: every call goes to the system's allocator with the same layout, or fails by a null pointer.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !took(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !took(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn options() -> PlanOptions {
    let mut options = PlanOptions::default();
    options.limits.memory_bytes = LIMIT as u64;
    options
}

fn views(files: &Files) -> BTreeMap<String, TensorBytes<'_>> {
    files.iter().map(|(n, (dtype, shape, data))| (n.clone(), TensorBytes { dtype, shape, data })).collect()
}

/// Reads a plan; `Ok` says whether it has weights.
fn read(json: &str, files: &Files, trust: &str) -> Result<bool, PlanError> {
    let (views, options) = (views(files), options());
    Ok(match trust {
        "client-aided" => Plan::from_parts(json, &views, &options)?.has_weights(),
        "two-party" => TwoPartyPlan::from_parts(json, &views, &options)?.has_weights(),
        _ => NonInteractivePlan::from_parts(json, &views, &options)?.has_weights(),
    })
}

/// A client's set-up with a server that sends this plan, takes what comes and goes at the first chance.
fn set_up(json: &str, files: &Files) -> Result<(), Error> {
    let plan = TwoPartyPlan::file(json, &views(files))?;
    let (near, mut far) = pipe();
    std::thread::scope(|scope| {
        scope.spawn(move || -> Result<(), Error> {
            far.recv()?;
            far.send(FrameBuilder::with_payload(Kind::Plan, &plan)?)?;
            drop(plan);
            // Keys of a session without interaction; of other sessions the greeting.
            far.set_limit(1 << 30);
            far.recv().map(drop)
        });
        let batch = ClientOptions { plan: options(), ..ClientOptions::default() };
        let two_party = TwoPartyOptions { plan: options(), ..TwoPartyOptions::default() };
        hushnet_runtime::session::open(Box::new(near), batch, two_party).map(drop)
    })
}

/// Processor time of the whole process so far, all its threads: one case runs at a time.
#[cfg(target_os = "linux")]
fn busy() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Elsewhere the clock on the wall.
#[cfg(not(target_os = "linux"))]
fn busy() -> Duration {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

/// What one plan costs, and whether it was accepted.
fn run(json: &str, case: &Case) -> (Duration, usize, bool) {
    let base = IN_USE.load(Ordering::Relaxed);
    PEAK.store(base, Ordering::Relaxed);
    CEILING.store(base + LIMIT + 4 * MARGIN, Ordering::Relaxed);
    let (start, before) = (Instant::now(), busy());
    let checked = read(json, &case.files, case.trust);
    // Of a public part, the client's set-up besides: whatever it says, it must say it in bounds.
    if matches!(checked, Ok(false)) {
        let _ = set_up(json, &case.files);
    }
    let took = busy().saturating_sub(before);
    assert!(
        start.elapsed() <= PATIENCE,
        "{}: {:?} on the clock, {took:?} of work",
        case.name,
        start.elapsed()
    );
    CEILING.store(usize::MAX, Ordering::Relaxed);
    (took, PEAK.load(Ordering::Relaxed).saturating_sub(base), checked.is_ok())
}

/// Demands bounds; other processes' use of the caches gets three tries at the time.
fn bounded(json: &str, case: &Case, what: &str) -> bool {
    *CURRENT.lock().unwrap() = format!("{}, {what}: more than the ceiling\n", case.name);
    let mut least = Duration::MAX;
    for _ in 0..3 {
        let (time, peak, accepted) = run(json, case);
        assert!(peak <= LIMIT + MARGIN, "{}, {what}: {peak} bytes", case.name);
        least = least.min(time);
        if least <= SECOND {
            return accepted;
        }
    }
    panic!("{}, {what}: {least:?}", case.name);
}

/// Where every value of a document stands; of long lists of plain values the first, a middle and the last element.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Array(list) => {
            let plain = list.iter().all(|v| !v.is_array() && !v.is_object());
            for (i, v) in list.iter().enumerate() {
                if !plain || list.len() < 4 || [0, list.len() / 2, list.len() - 1].contains(&i) {
                    places(v, &format!("{at}/{i}"), found);
                }
            }
        }
        Value::Object(map) => {
            for (key, v) in map {
                places(v, &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), found);
            }
        }
        _ => {}
    }
}

/// What a value is replaced by.
fn replacements(value: &Value) -> Vec<Value> {
    match value {
        Value::Number(_) => {
            let wide = [0, 1, 1 << 31, 1 << 36, 1 << 63_u64];
            let mut all: Vec<Value> = wide.into_iter().map(|v: u64| json!(v)).collect();
            all.extend([json!(-1), json!(i64::MIN), json!(0.5), json!(1e308)]);
            all
        }
        Value::Array(list) => {
            let long = list.first().cloned().unwrap_or(json!(1));
            vec![json!([]), Value::Array(vec![long; 20_000])]
        }
        Value::String(_) => vec![json!(""), json!("x".repeat(100_000))],
        _ => vec![Value::Null],
    }
}

/// The first characters of a value, which may have megabytes.
fn beginning(value: &Value) -> String {
    match value {
        Value::Array(list) if list.len() > 1 => {
            format!("[{}, ... {} in all]", beginning(&list[0]), list.len())
        }
        short => short.to_string().chars().take(100).collect(),
    }
}

fn mutate(case: &Case) {
    let original: Value = serde_json::from_str(&case.json).unwrap();
    assert!(
        bounded(&case.json, case, "as it is"),
        "{}: {:?}",
        case.name,
        read(&case.json, &case.files, case.trust)
    );
    let mut found = Vec::new();
    places(&original, "", &mut found);
    let (mut tried, mut accepted) = (0, 0);
    let mut changed = original.clone();
    for at in found.iter().filter(|at| !at.is_empty()) {
        let value = original.pointer(at).unwrap();
        // A list of 20000 stages or tensors is a large document: one such list says as much as all.
        for new in replacements(value) {
            let what = format!("{at} = {}", beginning(&new));
            *changed.pointer_mut(at).unwrap() = new;
            tried += 1;
            accepted += usize::from(bounded(&serde_json::to_string(&changed).unwrap(), case, &what));
        }
        *changed.pointer_mut(at).unwrap() = value.clone();
    }
    // Most changes make a plan wrong; some (names, notes, larger bounds) do not.
    assert!(tried > 100 && (1..tried).contains(&accepted), "{}: {accepted} of {tried} accepted", case.name);
}

fn each(cases: Vec<Case>) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    cases.iter().for_each(mutate);
}

#[test]
#[cfg(target_os = "linux")]
fn waiting_for_a_core_is_no_work() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let before = busy();
    std::thread::sleep(Duration::from_millis(500));
    assert!(busy().saturating_sub(before) < Duration::from_millis(250));
}

#[test]
fn two_party_plans_with_any_value_replaced() {
    each(corpus::two_party());
}

#[test]
fn client_aided_plans_with_any_value_replaced() {
    each(corpus::client_aided());
}

#[test]
fn non_interactive_plans_with_any_value_replaced() {
    each(corpus::non_interactive());
}

#[test]
fn consistent_plans_that_ask_for_too_much() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for (case, expected) in corpus::greedy() {
        bounded(&case.json, &case, "as it is");
        let refused = match read(&case.json, &case.files, case.trust) {
            Err(e) => e.to_string(),
            Ok(_) => set_up(&case.json, &case.files).unwrap_err().to_string(),
        };
        assert!(refused.contains(expected), "{}: {refused}", case.name);
    }
}
