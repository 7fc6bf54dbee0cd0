//! Networks with latency and limited bandwidth: a throttled channel, and predicted time.

use super::cost::Prediction;
use hushnet_mpc::channel::{Buffered, Link, Writer};
use hushnet_mpc::Result;
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Bytes that travel together: large enough for the scheduler, small enough for pipelines.
const PIECE: usize = 1 << 15;

/// A link between the parties, equal in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Network {
    /// Bits a second, each way.
    pub bits_per_second: f64,
    /// Seconds from one party to the other and back.
    pub round_trip_seconds: f64,
}

impl Network {
    /// A local network: 3 Gbit/s, round trips of 0.3 ms.
    pub const LAN: Self = Self { bits_per_second: 3e9, round_trip_seconds: 0.3e-3 };
    /// A wide-area network: 100 Mbit/s, round trips of 40 ms.
    pub const WAN: Self = Self { bits_per_second: 1e8, round_trip_seconds: 40e-3 };

    /// By name: `lan` or `wan`; `None` for `loopback` and unknown names.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "lan" => Some(Self::LAN),
            "wan" => Some(Self::WAN),
            _ => None,
        }
    }

    /// Seconds that `bytes` occupy the link.
    #[must_use]
    pub fn transfer_seconds(&self, bytes: u64) -> f64 {
        bytes as f64 * 8.0 / self.bits_per_second
    }

    /// Seconds of one group of images over this network, given `compute` seconds over an unlimited one:
    /// computing, one-way delays of all rounds, and the transfers of both directions, which follow each other.
    #[must_use]
    pub fn predict_seconds(&self, prediction: &Prediction, compute: f64) -> f64 {
        let t = &prediction.total;
        compute + t.rounds as f64 * self.round_trip_seconds / 2.0 + self.transfer_seconds(t.bytes())
    }
}

/// One end of a throttled connection. Sending never waits; a thread hands pieces over when the link would deliver them.
pub type ThrottledChannel = Buffered<ThrottledLink>;

/// A byte stream whose written half is delayed.
pub struct ThrottledLink {
    reader: Box<dyn Read + Send>,
    writer: Writer,
}

impl ThrottledLink {
    /// From the two halves of a reliable byte stream.
    #[must_use]
    pub fn new(reader: Box<dyn Read + Send>, mut sink: Box<dyn Write + Send>, network: Network) -> Self {
        let delay = Duration::from_secs_f64(network.round_trip_seconds / 2.0);
        let writer = Writer::with(move |messages| {
            let (timed, due) = mpsc::channel::<(Instant, Vec<u8>)>();
            let deliver = std::thread::spawn(move || {
                for (at, piece) in due {
                    std::thread::sleep(at.saturating_duration_since(Instant::now()));
                    if sink.write_all(&piece).and_then(|()| sink.flush()).is_err() {
                        return;
                    }
                }
            });
            schedule(&messages, &timed, network, delay);
            drop(timed);
            // A panic of the delivering thread is reported by itself.
            let _ = deliver.join();
        });
        Self { reader, writer }
    }

    /// Over a TCP connection (sets TCP_NODELAY).
    ///
    /// # Errors
    /// When the socket refuses.
    pub fn over_tcp(stream: TcpStream, network: Network) -> Result<ThrottledChannel> {
        stream.set_nodelay(true)?;
        let sink = stream.try_clone()?;
        let reader = std::io::BufReader::with_capacity(1 << 16, stream);
        Ok(Buffered::over(Self::new(Box::new(reader), Box::new(sink), network)))
    }
}

/// Two ends of a throttled connection within this process (over loopback TCP).
///
/// # Errors
/// When the system refuses sockets.
pub fn throttled_pair(network: Network) -> Result<(ThrottledChannel, ThrottledChannel)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let far = listener.accept()?.0;
    Ok((ThrottledLink::over_tcp(near, network)?, ThrottledLink::over_tcp(far, network)?))
}

/// Cuts messages into pieces and says when the link delivers each.
fn schedule(
    messages: &mpsc::Receiver<Vec<u8>>,
    timed: &mpsc::Sender<(Instant, Vec<u8>)>,
    network: Network,
    delay: Duration,
) {
    let mut free = Instant::now();
    for message in messages {
        for piece in message.chunks(PIECE) {
            free = free.max(Instant::now())
                + Duration::from_secs_f64(network.transfer_seconds(piece.len() as u64));
            if timed.send((free + delay, piece.to_vec())).is_err() {
                return;
            }
        }
    }
}

impl Link for ThrottledLink {
    const MESSAGE: usize = PIECE;

    fn put(&mut self, message: Vec<u8>) -> Result<()> {
        self.writer.put(message)
    }

    fn fill(&mut self, buf: &mut [u8]) -> Result<()> {
        Ok(self.reader.read_exact(buf)?)
    }
}
