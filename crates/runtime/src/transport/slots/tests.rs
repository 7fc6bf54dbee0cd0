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

fn started(rules: Rules) -> Arc<Slots> {
    let slots = Slots::new(rules);
    slots.set(2, 0);
    slots
}

async fn taken(slots: &Arc<Slots>) -> Place {
    let place = slots.enter().unwrap();
    place.work().await.unwrap();
    place
}

#[tokio::test]
async fn guests_take_no_slot_and_the_oldest_gives_its_place() {
    let slots = started(RULES);
    let [first, second, third] = [(); 3].map(|()| slots.enter().unwrap());
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
    let first = slots.enter().unwrap();
    let _others = [slots.enter(), slots.enter()];
    assert_eq!(first.work().await, Err(Refused::Busy));
}

#[tokio::test]
async fn who_keeps_a_full_server_waiting_gives_its_slot() {
    let slots = started(RULES);
    let silent = taken(&slots).await;
    silent.waits(false);
    let (start, next) = (Instant::now(), slots.enter().unwrap());
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
    let next = slots.enter().unwrap();
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
    let (start, next) = (Instant::now(), slots.enter().unwrap());
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
        let place = slots.enter().unwrap();
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
    let after = slots.enter().unwrap();
    after.needs(7);
    after.work().await.unwrap();
}

#[tokio::test]
async fn nobody_enters_a_stopping_server() {
    let slots = started(RULES);
    let (working, next) = (taken(&slots).await, slots.enter().unwrap());
    slots.close();
    assert_eq!(next.work().await, Err(Refused::Stopping));
    assert!(slots.enter().is_none() && slots.closed());
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
    assert_eq!(slots.shares.each_ref().map(|s| s.available_permits()), [100, 100]);
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
