//! Sets of a few rows, for the fuzz targets.

use super::*;

const MAIN: LpnParams = LpnParams { trees: 16, ones: 9, log_group: 3, depth: 5 };
const BOOT: LpnParams = LpnParams { trees: MAIN.base().div_ceil(1 << 5), ones: 14, log_group: 2, depth: 5 };
const SIZE: SilentSize = SilentSize::Tiny;

fn public() -> Public {
    Public { trees: 1, code: FixedKey::new(2) }
}

/// A base that both parties know.
fn base(sent: bool) -> Arc<Base> {
    let bit = |i: u64| Block::from(i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63);
    let q = |i: u64| Block::from(i + 1) << 64;
    let of = |i| if sent { q(i) } else { q(i) ^ (bit(i) * DELTA) };
    Arc::new(Base { blocks: (0..BOOT.base()).map(of).collect(), iteration: 1 })
}

const DELTA: Block = 0x1357_9bdf_0246_8ace_1122_3344_5566_7789;
const STEPS: [Step; 4] = [
    Step::Boot { trees: BOOT.trees },
    Step::Trees { trees: MAIN.trees - MAIN.reserve() },
    Step::Roll { trees: MAIN.reserve() },
    Step::Trees { trees: 2 },
];

impl Sender {
    pub(crate) fn few() -> Self {
        let source = softspoken::Sender::new(DELTA, Vec::new(), FixedKey::new(3));
        let mut new = Self::new(source, SIZE, public(), Prg::new(4));
        (new.params, new.boot, new.base) = (MAIN, BOOT, base(true));
        new
    }

    pub(crate) fn turn(mut self, ch: &mut dyn Channel) -> Result<Vec<Block>> {
        STEPS.into_iter().try_for_each(|step| self.step(ch, step))?;
        let mut out = vec![0; self.queue.len() << MAIN.depth];
        self.ledger = Ledger::stocked(OtKind::Silent(SIZE), out.len() as u64);
        self.fill(&mut out)?;
        Ok(out)
    }
}

impl Receiver {
    pub(crate) fn few() -> Self {
        let source = softspoken::Receiver::new(Vec::new(), FixedKey::new(3), Prg::new(5));
        let mut new = Self::new(source, SIZE, public());
        (new.params, new.boot, new.base) = (MAIN, BOOT, base(false));
        new
    }

    pub(crate) fn turn(mut self, ch: &mut dyn Channel) -> Result<Vec<Block>> {
        STEPS.into_iter().try_for_each(|step| self.step(ch, step))?;
        let mut out = vec![0; self.queue.len() << MAIN.depth];
        self.ledger = Ledger::stocked(OtKind::Silent(SIZE), out.len() as u64);
        self.fill(&mut out)?;
        Ok(out)
    }
}
