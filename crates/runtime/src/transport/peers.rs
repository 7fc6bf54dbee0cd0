//! What one peer may take: connections, sessions in work, bytes in an hour, wrong tokens.
//!
//! A peer is the owner of a token, the holder of a certificate, or else an address: of IPv6 the /64 that one host has for itself.

use super::socket::Line;
use crate::error::TransportError;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time over which bytes are counted.
const HOUR: Duration = Duration::from_secs(3600);
/// Wrong tokens that an address may send in [`FAILING`].
const FAILURES: u32 = 10;
/// Time over which wrong tokens are counted.
const FAILING: Duration = Duration::from_secs(60);
/// Peers that are remembered while they are not connected.
const KEPT: usize = 4096;
/// The ledger of all peers together; no name of a peer is empty.
const ALL: &str = "";

/// What one peer may take; `None`: as much as all may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerLimits {
    /// Connections of one address at once.
    pub connections: Option<usize>,
    /// Sessions in work at once of one peer.
    pub sessions: Option<usize>,
    /// Bytes of frames of one peer in an hour, both ways together.
    pub hourly_bytes: Option<u64>,
    /// Bytes of frames of all peers in an hour, both ways together.
    pub hourly_bytes_of_all: Option<u64>,
}

#[derive(Default)]
struct Ledger {
    connections: usize,
    sessions: usize,
    /// Accounts that count here.
    accounts: usize,
    /// Bytes since an instant.
    bytes: Option<(Instant, u64)>,
    /// Wrong tokens since an instant.
    failures: Option<(Instant, u32)>,
}

impl Ledger {
    /// Whether there is anything to remember.
    fn matters(&self, now: Instant) -> bool {
        let young = |since: Instant, time| now.saturating_duration_since(since) < time;
        self.in_use()
            || self.bytes.is_some_and(|(since, _)| young(since, HOUR))
            || self.failures.is_some_and(|(since, _)| young(since, FAILING))
    }

    fn in_use(&self) -> bool {
        self.connections + self.sessions + self.accounts > 0
    }

    fn moved(&mut self, bytes: u64, now: Instant) {
        let (since, before) =
            self.bytes.filter(|(since, _)| now.saturating_duration_since(*since) < HOUR).unwrap_or((now, 0));
        self.bytes = Some((since, before.saturating_add(bytes)));
    }

    /// Seconds for which the peer has had its bytes.
    fn spent(&self, limit: Option<u64>, now: Instant) -> Option<u64> {
        let (since, bytes) = self.bytes?;
        let left = HOUR.checked_sub(now.saturating_duration_since(since))?;
        (bytes >= limit?).then(|| left.as_secs() + 1)
    }
}

/// All peers that there are, and those that were here not long ago.
pub(super) struct Peers {
    limits: PeerLimits,
    ledgers: Mutex<HashMap<String, Ledger>>,
    /// Certificates of connections that are open, by the peer's address and port.
    certificates: Mutex<HashMap<SocketAddr, String>>,
    /// Clients of connections that a proxy passes on, by the proxy's address and port.
    proxied: Mutex<HashMap<SocketAddr, SocketAddr>>,
    /// What tells of connections that are open, by the peer's address and port.
    lines: Mutex<HashMap<SocketAddr, Line>>,
}

impl Peers {
    pub(super) fn new(limits: PeerLimits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            ledgers: Mutex::default(),
            certificates: Mutex::default(),
            proxied: Mutex::default(),
            lines: Mutex::default(),
        })
    }

    fn ledgers(&self) -> MutexGuard<'_, HashMap<String, Ledger>> {
        self.ledgers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn certificates(&self) -> MutexGuard<'_, HashMap<SocketAddr, String>> {
        self.certificates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a connection; `None` when its address has as many as it may, or it or its site as many as `most` where connections are scarce.
    pub(super) fn connect(self: &Arc<Self>, peer: SocketAddr, most: Option<usize>) -> Option<Connected> {
        let names = [Some(address(peer.ip())), site(peer.ip())];
        let mut ledgers = self.ledgers();
        forget(&mut ledgers);
        let open = |name: &String| ledgers.get(name).map_or(0, |ledger| ledger.connections);
        let (own, all) = (names[0].as_ref().map_or(0, open), names.iter().flatten().map(open).max());
        let all = all.unwrap_or(0);
        if self.limits.connections.is_some_and(|most| own >= most) || most.is_some_and(|most| all >= most) {
            return None;
        }
        for name in names.iter().flatten() {
            ledgers.entry(name.clone()).or_default().connections += 1;
        }
        Some(Connected { peers: self.clone(), peer, proxy: None, names })
    }

    fn proxied(&self) -> MutexGuard<'_, HashMap<SocketAddr, SocketAddr>> {
        self.proxied.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<SocketAddr, Line>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What tells of a peer's connection.
    pub(super) fn line(&self, peer: SocketAddr) -> Option<Line> {
        self.lines().get(&peer).cloned()
    }

    /// The client of a connection: its other end, or whom a proxy there speaks for.
    pub(super) fn client(&self, end: SocketAddr) -> SocketAddr {
        self.proxied().get(&end).copied().unwrap_or(end)
    }

    /// The name of a peer: of its token's owner, of its certificate, or its address.
    pub(super) fn name(&self, peer: SocketAddr, owner: Option<&str>) -> String {
        match owner {
            Some(owner) => format!("token:{owner}"),
            None => self.certificates().get(&peer).cloned().unwrap_or_else(|| address(peer.ip())),
        }
    }

    /// What a session counts to.
    pub(super) fn account(self: &Arc<Self>, name: String) -> Account {
        let mut ledgers = self.ledgers();
        forget(&mut ledgers);
        ledgers.entry(name.clone()).or_default().accounts += 1;
        drop(ledgers);
        Account { peers: self.clone(), name, works: false }
    }

    /// Refuses an address that has sent wrong tokens too often; nothing is compared for it meanwhile.
    pub(super) fn patient(&self, peer: SocketAddr) -> Result<(), TransportError> {
        let ledgers = self.ledgers();
        let failures = ledgers.get(&address(peer.ip())).and_then(|l| l.failures);
        let Some((since, count)) = failures else { return Ok(()) };
        match FAILING.checked_sub(since.elapsed()) {
            Some(left) if count >= FAILURES => Err(TransportError::Limited {
                what: "too many wrong tokens have come from this address",
                seconds: left.as_secs() + 1,
            }),
            _ => Ok(()),
        }
    }

    /// Counts a wrong token.
    pub(super) fn failed(&self, peer: SocketAddr) {
        let (mut ledgers, now) = (self.ledgers(), Instant::now());
        forget(&mut ledgers);
        let ledger = ledgers.entry(address(peer.ip())).or_default();
        let young = |(since, _): &(Instant, u32)| now.saturating_duration_since(*since) < FAILING;
        let (since, count) = ledger.failures.filter(young).unwrap_or((now, 0));
        ledger.failures = Some((since, count.saturating_add(1)));
    }
}

/// Makes room where too many peers are remembered: those who say nothing of interest go first, then any that are gone.
fn forget(ledgers: &mut HashMap<String, Ledger>) {
    if ledgers.len() < KEPT {
        return;
    }
    let now = Instant::now();
    ledgers.retain(|name, ledger| name == ALL || ledger.matters(now));
    if ledgers.len() < 2 * KEPT {
        return;
    }
    // Those that are barred and those that have moved most stay: else whoever has thousands of addresses would wipe his own account, and everybody's,
    // by a wrong token from each of them.
    let weight = |ledger: &Ledger| {
        let failures = ledger.failures.map_or(0, |(_, count)| count);
        (failures >= FAILURES, ledger.bytes.map_or(0, |(_, bytes)| bytes), failures)
    };
    let mut weights: Vec<_> = ledgers.values().filter(|ledger| !ledger.in_use()).map(weight).collect();
    let Some(rank) = weights.len().checked_sub(KEPT) else { return };
    let least = *weights.select_nth_unstable(rank).1;
    // Many may weigh as much as the least that stays.
    let mut equals = KEPT - weights.iter().filter(|weight| **weight > least).count();
    ledgers.retain(|name, ledger| {
        let weight = weight(ledger);
        let equal = weight == least && equals > 0 && name != ALL && !ledger.in_use();
        equals -= usize::from(equal);
        equal || name == ALL || ledger.in_use() || weight > least
    });
}

/// Of IPv6 the /48 that a site has for itself, as a name: whoever has one has 65,536 peers in it.
fn site(ip: IpAddr) -> Option<String> {
    match ip.to_canonical() {
        IpAddr::V4(_) => None,
        IpAddr::V6(ip) => {
            let [a, b, c, ..] = ip.segments();
            Some(format!("{}/48", Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0)))
        }
    }
}

/// An address, as a peer's name.
fn address(ip: IpAddr) -> String {
    match ip.to_canonical() {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => {
            let [a, b, c, d, ..] = ip.segments();
            format!("{}/64", Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}

/// A connection that counts until it is dropped.
pub(super) struct Connected {
    peers: Arc<Peers>,
    peer: SocketAddr,
    proxy: Option<SocketAddr>,
    /// Those that it counts to.
    names: [Option<String>; 2],
}

impl Connected {
    /// The peer has shown this certificate; it is known by it until the connection ends.
    pub(super) fn certified(&self, name: String) {
        self.peers.certificates().insert(self.peer, name);
    }

    /// The connection is this one.
    pub(super) fn on(&self, line: Line) {
        self.peers.lines().insert(self.peer, line);
    }

    /// The connection's other end is a proxy that passes it on.
    pub(super) fn through(&mut self, proxy: SocketAddr) {
        self.peers.proxied().insert(proxy, self.peer);
        self.proxy = Some(proxy);
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.peers.certificates().remove(&self.peer);
        self.peers.lines().remove(&self.peer);
        if let Some(proxy) = &self.proxy {
            self.peers.proxied().remove(proxy);
        }
        let mut ledgers = self.peers.ledgers();
        for name in self.names.iter().flatten() {
            if let Some(ledger) = ledgers.get_mut(name) {
                ledger.connections -= 1;
            }
        }
    }
}

/// What one session counts to, until it is dropped.
pub(super) struct Account {
    peers: Arc<Peers>,
    name: String,
    works: bool,
}

impl Account {
    /// Counts the session among those in work.
    ///
    /// # Errors
    /// [`TransportError::Limited`] when the peer has as many as it may.
    pub(super) fn begin(&mut self, later: u64) -> Result<(), TransportError> {
        let mut ledgers = self.peers.ledgers();
        let ledger = ledgers.entry(self.name.clone()).or_default();
        if self.peers.limits.sessions.is_some_and(|most| ledger.sessions >= most) {
            let what = "this peer has as many sessions in work as it may";
            return Err(TransportError::Limited { what, seconds: later });
        }
        ledger.sessions += 1;
        self.works = true;
        Ok(())
    }

    /// Counts bytes of frames.
    ///
    /// # Errors
    /// [`TransportError::Limited`] when the peer, or all peers together, have had what they may in an hour.
    pub(super) fn moved(&self, bytes: u64) -> Result<(), TransportError> {
        let limits = self.peers.limits;
        if limits.hourly_bytes.is_none() && limits.hourly_bytes_of_all.is_none() {
            return Ok(());
        }
        let (mut ledgers, now) = (self.peers.ledgers(), Instant::now());
        for (name, limit, what) in [
            (
                self.name.as_str(),
                limits.hourly_bytes,
                "this peer has sent and received as much as it may in an hour",
            ),
            (
                ALL,
                limits.hourly_bytes_of_all,
                "all clients have sent and received as much as they may in an hour",
            ),
        ] {
            let ledger = ledgers.entry(name.to_owned()).or_default();
            if let Some(seconds) = ledger.spent(limit, now) {
                return Err(TransportError::Limited { what, seconds });
            }
            ledger.moved(bytes, now);
        }
        Ok(())
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        if let Some(ledger) = self.peers.ledgers().get_mut(&self.name) {
            ledger.accounts -= 1;
            ledger.sessions -= usize::from(self.works);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn connections_sessions_and_bytes_have_limits_of_their_own() {
        let limits = PeerLimits {
            connections: Some(2),
            sessions: Some(1),
            hourly_bytes: Some(100),
            hourly_bytes_of_all: Some(150),
        };
        let peers = Peers::new(limits);
        let [first, second, third] =
            [1, 2, 3].map(|port| peers.connect(peer(&format!("10.0.0.1:{port}")), None));
        assert!(first.is_some() && second.is_some() && third.is_none());
        assert!(peers.connect(peer("10.0.0.2:1"), Some(1)).is_some());
        drop(first);
        assert!(
            peers.connect(peer("10.0.0.1:4"), Some(1)).is_none(),
            "it has one, and connections are scarce"
        );
        assert!(peers.connect(peer("10.0.0.1:4"), None).is_some());
        let account = |name: &str| peers.account(name.to_owned());
        let (mut a, mut again, mut b) = (account("a"), account("a"), account("b"));
        a.begin(7).unwrap();
        assert!(matches!(again.begin(7), Err(TransportError::Limited { seconds: 7, .. })));
        b.begin(7).unwrap();
        drop(a);
        again.begin(7).unwrap();
        again.moved(99).unwrap();
        again.moved(1).unwrap();
        let error = account("a").moved(1).unwrap_err().to_string();
        assert!(
            error.contains("this peer has sent") && error.contains("try again in 3600 seconds"),
            "{error}"
        );
        b.moved(50).unwrap();
        assert!(b.moved(1).unwrap_err().to_string().contains("all clients"));
    }

    #[test]
    fn hosts_with_many_addresses_are_one_peer() {
        let peers = Peers::new(PeerLimits::default());
        let name = |text: &str| peers.name(peer(text), None);
        assert_eq!(name("[2001:db8:1:2:3::4]:1"), name("[2001:db8:1:2:ffff::]:9"));
        assert_ne!(name("[2001:db8:1:2::]:1"), name("[2001:db8:1:3::]:1"));
        assert_eq!(name("[::ffff:10.0.0.1]:1"), "10.0.0.1");
        let held = peers.connect(peer("10.0.0.1:5"), None).unwrap();
        held.certified("certificate:ab".into());
        assert_eq!(name("10.0.0.1:5"), "certificate:ab");
        assert_eq!(peers.name(peer("10.0.0.1:5"), Some("ann")), "token:ann");
        drop(held);
        assert_eq!(name("10.0.0.1:5"), "10.0.0.1");
    }

    #[test]
    fn wrong_tokens_bar_their_address_alone() {
        let peers = Peers::new(PeerLimits::default());
        for _ in 0..FAILURES {
            peers.patient(peer("10.0.0.1:5")).unwrap();
            peers.failed(peer("10.0.0.1:5"));
        }
        assert!(matches!(
            peers.patient(peer("10.0.0.1:6")),
            Err(TransportError::Limited { seconds: 1..=60, .. })
        ));
        peers.patient(peer("10.0.0.2:5")).unwrap();
        peers.ledgers().get_mut("10.0.0.1").unwrap().failures =
            Instant::now().checked_sub(FAILING).map(|t| (t, 99));
        peers.patient(peer("10.0.0.1:6")).unwrap();
    }

    #[test]
    fn a_site_with_many_networks_takes_one_share_of_scarce_connections() {
        let peers = Peers::new(PeerLimits::default());
        let from = |network: u16, most| peers.connect(peer(&format!("[2001:db8:1:{network:x}::1]:1")), most);
        let held: Vec<_> = (0..8).filter_map(|network| from(network, Some(4))).collect();
        assert_eq!(held.len(), 4, "eight networks of one /48");
        assert!(from(9, None).is_some(), "where there is room, each is a peer of its own");
        assert!(peers.connect(peer("[2001:db8:2::1]:1"), Some(4)).is_some(), "another site");
        drop(held);
        assert!(from(0, Some(4)).is_some());
        assert!(peers.ledgers().values().all(|ledger| ledger.connections == 0));
    }

    #[test]
    fn thousands_of_strangers_wipe_no_account() {
        let peers = Peers::new(PeerLimits { hourly_bytes: Some(100), ..PeerLimits::default() });
        let spent = || peers.account("10.0.0.1".to_owned()).moved(1).is_err();
        peers.account("10.0.0.1".to_owned()).moved(100).unwrap();
        (0..FAILURES).for_each(|_| peers.failed(peer("10.0.0.2:1")));
        assert!(spent() && peers.patient(peer("10.0.0.2:1")).is_err());
        for i in 0..4 * KEPT {
            let stranger = format!("[2001:db8:{:x}:{:x}::]:1", i >> 16, i & 0xffff);
            peers.failed(peer(&stranger));
        }
        assert!(peers.ledgers().len() <= 2 * KEPT);
        assert!(spent(), "its hour is not over");
        assert!(peers.patient(peer("10.0.0.2:1")).is_err(), "nor is its bar");
    }

    #[test]
    fn strangers_are_forgotten() {
        let peers = Peers::new(PeerLimits::default());
        let kept = peers.connect(peer("[2001:db8::]:1"), None);
        for i in 0..3 * KEPT {
            peers.failed(peer(&format!("10.{}.{}.{}:1", i >> 16, i >> 8 & 255, i & 255)));
        }
        assert!(peers.ledgers().len() <= 2 * KEPT && peers.ledgers().contains_key("2001:db8::/64"));
        drop(kept);
    }
}
