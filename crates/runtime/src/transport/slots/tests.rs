use super::*;

const RULES: Rules = Rules {
    slots: 1,
    unit: Memory::of(1, 1000),
    memory: 10,
    shares: [100, 100],
    line: Duration::from_secs(5),
    patience: Duration::from_millis(200),
    session: Duration::from_secs(3600),
};

const PEER: &str = "10.0.0.1";
const HOG: &str = "10.0.0.2";

fn started(rules: Rules) -> Arc<Slots> {
    let slots = Slots::new(rules);
    slots.set(2, 0);
    slots
}

async fn taken(slots: &Arc<Slots>) -> Place {
    taken_by(slots, PEER).await
}

async fn taken_by(slots: &Arc<Slots>, peer: &str) -> Place {
    let place = slots.enter(peer).unwrap();
    place.work().await.unwrap();
    place
}

/// A client that stands in line, and what comes of it.
fn in_line(slots: &Arc<Slots>, peer: &str) -> (Arc<Place>, tokio::task::JoinHandle<Result<(), Refused>>) {
    let place = Arc::new(slots.enter(peer).unwrap());
    let waiting = place.clone();
    (place, tokio::spawn(async move { waiting.work().await }))
}

async fn until(condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(10));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn guests_take_no_slot_and_the_oldest_gives_its_place() {
    let slots = started(RULES);
    let [first, second, third] = [(); 3].map(|()| slots.enter(PEER).unwrap());
    first.given().await;
    assert!(!slots.full() && slots.count().guests == 2);
    third.needs(3);
    third.work().await.unwrap();
    let now = Count { begun: 1, active: 1, guests: 1, in_line: 0, reserved: [3, 3] };
    assert!(slots.full() && slots.count() == now);
    drop(third);
    second.work().await.unwrap();
}

#[tokio::test]
async fn a_place_that_was_given_away_gets_no_slot() {
    let slots = started(RULES);
    let first = slots.enter(PEER).unwrap();
    let _others = [slots.enter(PEER), slots.enter(PEER)];
    assert_eq!(first.work().await, Err(Refused::Busy));
}

#[tokio::test]
async fn who_keeps_a_full_server_waiting_gives_its_slot() {
    let slots = started(RULES);
    let silent = taken(&slots).await;
    silent.waits(false);
    let (start, next) = (Instant::now(), slots.enter(PEER).unwrap());
    let (got, ()) = tokio::join!(next.work(), async {
        silent.given().await;
        assert!(start.elapsed() >= RULES.patience / 2);
        drop(silent);
    });
    got.unwrap();
    assert!(start.elapsed() < Duration::from_secs(2));
}

#[tokio::test]
async fn a_session_in_work_and_an_empty_line_keep_their_slots() {
    let rules = Rules { line: Duration::from_millis(500), ..RULES };
    let slots = started(rules);
    let working = taken(&slots).await;
    let next = slots.enter(PEER).unwrap();
    assert_eq!(next.work().await, Err(Refused::Busy));
    // Nobody waits any more: silence costs nothing.
    working.waits(true);
    assert!(tokio::time::timeout(Duration::from_millis(500), working.given()).await.is_err());
}

#[tokio::test]
async fn old_sessions_give_their_slot_between_blocks() {
    let rules = Rules { patience: Duration::from_secs(60), session: Duration::from_millis(300), ..RULES };
    let slots = started(rules);
    let old = taken(&slots).await;
    old.waits(true);
    let (start, next) = (Instant::now(), slots.enter(PEER).unwrap());
    let (got, ()) = tokio::join!(next.work(), async {
        old.given().await;
        drop(old);
    });
    got.unwrap();
    assert!((300..2000).contains(&start.elapsed().as_millis()));
}

#[tokio::test]
async fn all_sessions_share_the_memory() {
    let slots = started(Rules { slots: 8, line: Duration::from_millis(300), ..RULES });
    slots.set(8, 3);
    let [large, small, next] = [6, 3, 3].map(|grains| {
        let place = slots.enter(PEER).unwrap();
        place.needs(grains);
        place
    });
    large.work().await.unwrap();
    assert!(!slots.full());
    small.work().await.unwrap();
    assert!(slots.full(), "one grain is left, and a session takes three");
    assert_eq!(next.work().await, Err(Refused::Busy));
    drop(large);
    assert!(!slots.full() && slots.count().active == 1);
    let after = slots.enter(PEER).unwrap();
    after.needs(7);
    after.work().await.unwrap();
}

#[tokio::test]
async fn nobody_enters_a_stopping_server() {
    let slots = started(RULES);
    let (working, next) = (taken(&slots).await, slots.enter(PEER).unwrap());
    slots.close();
    assert_eq!(next.work().await, Err(Refused::Stopping));
    assert!(slots.enter(PEER).is_none() && slots.closed());
    drop(working);
}

/// All of a share.
const WHOLE: u64 = 100;

#[tokio::test]
async fn memory_is_waited_for_in_order_and_comes_back() {
    let slots = started(Rules { slots: 3, ..RULES });
    slots.set(3, 0);
    let (first, large, small) = (taken(&slots).await, taken(&slots).await, taken(&slots).await);
    first.reserve(Share::Block, WHOLE / 2).await.unwrap();
    // A small one that comes after a large one waits behind it.
    let order = Mutex::new(Vec::new());
    tokio::join!(
        async {
            large.reserve(Share::Block, WHOLE).await.unwrap();
            order.lock().unwrap().push("large");
            large.release(Share::Block);
        },
        async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            small.reserve(Share::Block, WHOLE / 2).await.unwrap();
            order.lock().unwrap().push("small");
        },
        async {
            tokio::time::sleep(Duration::from_millis(60)).await;
            assert!(order.lock().unwrap().is_empty() && slots.full() && slots.count().in_line == 2);
            // Set-ups are another share.
            first.reserve(Share::SetUp, WHOLE).await.unwrap();
            first.release(Share::Block);
        }
    );
    assert_eq!(*order.lock().unwrap(), ["large", "small"]);
    // `first` has its set-up and `small` half of the blocks; at most that set-up and the large block were reserved together.
    assert_eq!(slots.count().reserved, [WHOLE + WHOLE / 2, 2 * WHOLE]);
    drop((first, large, small));
    assert_eq!(slots.shares.each_ref().map(|s| s.free().1), [100, 100]);
}

#[tokio::test]
async fn who_announces_much_and_sends_nothing_gives_its_memory() {
    let slots = started(Rules { slots: 3, ..RULES });
    slots.set(3, 0);
    let (hoarder, idle, good) = (taken(&slots).await, taken(&slots).await, taken(&slots).await);
    hoarder.reserve(Share::Block, WHOLE).await.unwrap();
    hoarder.waits(false);
    // One that keeps the server waiting without memory of this kind would be of no use.
    idle.reserve(Share::SetUp, WHOLE).await.unwrap();
    idle.waits(true);
    let start = Instant::now();
    let (got, ()) = tokio::join!(good.reserve(Share::Block, 1), async {
        hoarder.given().await;
        drop(hoarder);
    });
    got.unwrap();
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    assert!(tokio::time::timeout(Duration::from_millis(300), idle.given()).await.is_err());
}

#[tokio::test]
async fn memory_that_does_not_come_free_is_refused() {
    let rules = Rules { slots: 2, line: Duration::from_millis(200), ..RULES };
    let slots = started(rules);
    let (working, next) = (taken(&slots).await, taken(&slots).await);
    working.reserve(Share::Block, WHOLE).await.unwrap();
    assert_eq!(next.reserve(Share::Block, 1).await, Err(Refused::Busy));
    // More of the same share: what is there goes back first, so that nobody waits for itself.
    working.reserve(Share::Block, WHOLE / 2).await.unwrap();
    slots.close();
    assert_eq!(next.reserve(Share::SetUp, 1).await, Err(Refused::Stopping));
}

#[tokio::test]
async fn time_in_line_is_no_work_that_buys_patience() {
    let slots = started(Rules { slots: 3, ..RULES });
    slots.set(3, 0);
    let (first, second, third) = (taken(&slots).await, taken(&slots).await, taken(&slots).await);
    first.reserve(Share::Block, WHOLE).await.unwrap();
    let (got, ()) = tokio::join!(second.reserve(Share::Block, WHOLE), async {
        tokio::time::sleep(Duration::from_millis(400)).await;
        first.release(Share::Block);
    });
    got.unwrap();
    second.waits(false);
    let start = Instant::now();
    let (got, ()) = tokio::join!(third.reserve(Share::Block, WHOLE), async {
        second.given().await;
        drop(second);
    });
    got.unwrap();
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}

/// Nobody gives a slot in these.
const PATIENT: Rules = Rules { slots: 2, patience: Duration::from_secs(60), ..RULES };

#[tokio::test]
async fn a_peer_with_many_clients_waits_among_its_own() {
    let slots = started(PATIENT);
    slots.set(100, 0);
    let (first, _second) = (taken_by(&slots, HOG).await, taken_by(&slots, HOG).await);
    let many: Vec<_> = (0..50).map(|_| in_line(&slots, HOG)).collect();
    until(|| slots.count().in_line == 50).await;
    let (good, waiting) = in_line(&slots, PEER);
    until(|| slots.count().in_line == 51).await;
    drop(first);
    waiting.await.unwrap().unwrap();
    assert_eq!((slots.count().in_line, slots.count().active), (50, 2), "it came last and was served first");
    drop(good);
    until(|| slots.count().in_line == 49).await;
    many.iter().for_each(|(_, waiting)| waiting.abort());
}

#[tokio::test]
async fn blocks_take_turns_by_peer() {
    let slots = started(Rules { slots: 8, ..PATIENT });
    slots.set(9, 0);
    let mut places = Vec::new();
    for peer in [HOG, HOG, HOG, HOG, PEER] {
        places.push(Arc::new(taken_by(&slots, peer).await));
    }
    places[0].reserve(Share::Block, WHOLE / 2).await.unwrap();
    places[1].reserve(Share::Block, WHOLE / 2).await.unwrap();
    let waiting: Vec<_> = places[2..]
        .iter()
        .cloned()
        .map(|place| tokio::spawn(async move { place.reserve(Share::Block, WHOLE / 2).await }))
        .collect();
    until(|| slots.count().in_line == 3).await;
    places[0].release(Share::Block);
    until(|| slots.count().in_line == 2).await;
    assert!(waiting[2].is_finished() || waiting.iter().filter(|w| w.is_finished()).count() == 0);
    until(|| waiting[2].is_finished()).await;
    assert!(!waiting[0].is_finished() && !waiting[1].is_finished());
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn the_peer_that_has_most_guests_gives_one() {
    let slots = started(PATIENT);
    slots.set(4, 0);
    let oldest = slots.enter(PEER).unwrap();
    let many: Vec<_> = (0..3).map(|_| slots.enter(HOG).unwrap()).collect();
    // A certificate or a token counts from the greeting on.
    many[2].belongs("token:hog");
    let _more = slots.enter(HOG).unwrap();
    many[0].given().await;
    oldest.work().await.unwrap();
    // Of a peer that only stands in line the last one goes.
    let _other = slots.enter(PEER).unwrap();
    let slots = started(PATIENT);
    slots.set(4, 0);
    let _held = [taken_by(&slots, HOG).await, taken_by(&slots, HOG).await];
    let mut many = Vec::new();
    for count in 1..=4 {
        many.push(in_line(&slots, HOG));
        until(|| slots.count().in_line == count).await;
    }
    let good = slots.enter(PEER).unwrap();
    until(|| slots.count().in_line == 3).await;
    let (_, last) = many.pop().unwrap();
    assert_eq!(last.await.unwrap(), Err(Refused::Busy));
    assert!(many.iter().all(|(_, waiting)| !waiting.is_finished()));
    drop(good);
    many.iter().for_each(|(_, waiting)| waiting.abort());
}

#[tokio::test]
async fn a_long_line_of_one_peer_costs_others_no_patience() {
    let slots = started(Rules { slots: 3, patience: Duration::from_secs(2), ..RULES });
    slots.set(100, 0);
    let (good, first, second) =
        (taken_by(&slots, PEER).await, taken_by(&slots, HOG).await, taken_by(&slots, HOG).await);
    // All three keep the server waiting; the good one for longest.
    for place in [&good, &first, &second] {
        place.waits(false);
    }
    let start = Instant::now();
    let many: Vec<_> = (0..20).map(|_| in_line(&slots, HOG)).collect();
    tokio::join!(first.given(), second.given());
    let took = start.elapsed();
    assert!((250..900).contains(&took.as_millis()), "an eighth of the patience, not {took:?}");
    assert!(tokio::time::timeout(Duration::from_millis(50), good.given()).await.is_err());
    many.iter().for_each(|(_, waiting)| waiting.abort());
}

#[tokio::test]
async fn work_buys_a_peer_with_many_slots_less_time() {
    let slots = started(Rules { slots: 4, ..RULES });
    slots.set(9, 0);
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(taken_by(&slots, HOG).await);
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    // Each has worked for 200 ms, which buys 2 s, and half a second where four slots share it.
    held.iter().for_each(|place| place.waits(false));
    let start = Instant::now();
    let (good, waiting) = in_line(&slots, PEER);
    tokio::select! {
        () = held[0].given() => {}
        () = held[1].given() => {}
        () = held[2].given() => {}
        () = held[3].given() => {}
    }
    let took = start.elapsed();
    assert!((500..1500).contains(&took.as_millis()), "{took:?}");
    drop(held);
    waiting.await.unwrap().unwrap();
    drop(good);
}
