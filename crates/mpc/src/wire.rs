//! Planes and packed words on the channel.

use crate::bits::{self, bytes, words};
use crate::channel::Channel;
use crate::error::Result;

/// Sends n bits.
pub(crate) fn send_plane(ch: &mut dyn Channel, plane: &[u64], n: usize) -> Result<()> {
    let mut buf = [0u8; 1024];
    let mut left = bytes(n);
    for chunk in plane[..words(n)].chunks(128) {
        for (b, w) in buf.chunks_exact_mut(8).zip(chunk) {
            b.copy_from_slice(&w.to_le_bytes());
        }
        let k = left.min(8 * chunk.len());
        ch.send(&buf[..k])?;
        left -= k;
    }
    Ok(())
}

/// Receives n bits.
pub(crate) fn recv_plane(ch: &mut dyn Channel, n: usize) -> Result<Vec<u64>> {
    let mut plane = vec![0u64; words(n)];
    let mut buf = [0u8; 1024];
    let mut left = bytes(n);
    for chunk in plane.chunks_mut(128) {
        let k = left.min(8 * chunk.len());
        ch.recv(&mut buf[..k])?;
        buf[k..].fill(0);
        for (b, w) in buf.chunks_exact(8).zip(chunk) {
            let mut a = [0; 8];
            a.copy_from_slice(b);
            *w = u64::from_le_bytes(a);
        }
        left -= k;
    }
    Ok(plane)
}

/// Receives n bits, 64 at most, as one word.
pub(crate) fn recv_word(ch: &mut dyn Channel, n: usize) -> Result<u64> {
    let mut word = [0; 8];
    ch.recv(&mut word[..bytes(n.min(64))])?;
    Ok(u64::from_le_bytes(word))
}

/// Sends values of l bits.
pub(crate) fn send_packed(ch: &mut dyn Channel, values: &[u64], l: u32) -> Result<()> {
    let mut buf = Vec::with_capacity(bytes(1024 * l as usize));
    for chunk in values.chunks(1024) {
        buf.clear();
        bits::pack(chunk, l, &mut buf)?;
        ch.send(&buf)?;
    }
    Ok(())
}

/// Receives values of l bits.
pub(crate) fn recv_packed(ch: &mut dyn Channel, n: usize, l: u32) -> Result<Vec<u64>> {
    let mut out = vec![0; n];
    let mut buf = vec![0u8; bytes(1024 * l as usize)];
    for chunk in out.chunks_mut(1024) {
        let buf = &mut buf[..bytes(chunk.len() * l as usize)];
        ch.recv(buf)?;
        bits::unpack(buf, l, chunk)?;
    }
    Ok(out)
}

/// Bytes of [`send_packed`] (1024 values of l bits fill whole bytes, so chunking adds nothing).
pub(crate) const fn packed_bytes(n: usize, l: u32) -> u64 {
    bytes(n * l as usize) as u64
}
