//! Functions of one variable that networks apply element by element.

/// A function; [`Function::at`] has its formula.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Function {
    /// 1 / (1 + e^-x).
    Sigmoid,
    /// tanh x.
    Tanh,
    /// x / (1 + e^-x), SiLU or swish.
    Silu,
    /// x (1 + erf(x / sqrt 2)) / 2.
    Gelu,
    /// x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2.
    GeluTanh,
    /// x tanh(ln(1 + e^x)).
    Mish,
    /// e^x.
    Exp,
    /// ln(1 + e^x).
    Softplus,
    /// The error function.
    Erf,
    /// x for x >= 0, e^x - 1 below.
    Elu,
    /// 1 / x.
    Reciprocal,
    /// 1 / sqrt x.
    InverseRoot,
}

impl Function {
    /// All functions that a spline may stand for.
    pub const ALL: [Self; 12] = [
        Self::Sigmoid,
        Self::Tanh,
        Self::Silu,
        Self::Gelu,
        Self::GeluTanh,
        Self::Mish,
        Self::Exp,
        Self::Softplus,
        Self::Erf,
        Self::Elu,
        Self::Reciprocal,
        Self::InverseRoot,
    ];

    /// The value at x, in floating point.
    #[must_use]
    pub fn at(self, x: f64) -> f64 {
        match self {
            Self::Sigmoid => sigmoid(x),
            Self::Tanh => x.tanh(),
            Self::Silu => x * sigmoid(x),
            Self::Gelu => x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2)) / 2.0,
            Self::GeluTanh => {
                let slope = (2.0 / std::f64::consts::PI).sqrt();
                x * (1.0 + (slope * (x + 0.044_715 * x * x * x)).tanh()) / 2.0
            }
            Self::Mish => x * softplus(x).tanh(),
            Self::Exp => x.exp(),
            Self::Softplus => softplus(x),
            Self::Erf => erf(x),
            Self::Elu => x.max(x.min(0.0).exp_m1()),
            Self::Reciprocal => 1.0 / x,
            Self::InverseRoot => 1.0 / x.sqrt(),
        }
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// erf x = 2/sqrt(pi) e^(-x^2) (x + 2 x^3/3 + 4 x^5/(3*5) + ...): no term cancels another (Abramowitz and Stegun, 7.1.6).
fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 {
        return x.signum();
    }
    let (mut term, mut sum, mut odd) = (x, x, 1.0);
    while term.abs() > 1e-17 * sum.abs() {
        odd += 2.0;
        term *= 2.0 * x * x / odd;
        sum += term;
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Published values (Abramowitz and Stegun, table 7.1) and identities.
    #[test]
    fn values_are_right() {
        for (x, y) in [
            (0.0, 0.0),
            (0.5, 0.520_499_877_8),
            (1.0, 0.842_700_792_9),
            (2.0, 0.995_322_265_0),
            (-1.0, -0.842_700_792_9),
            (5.0, 1.0),
        ] {
            assert!((erf(x) - y).abs() < 1e-9, "erf {x}");
        }
        for i in -60..=60 {
            let x = f64::from(i) / 4.0;
            let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-12 * (1.0 + b.abs()), "{x}: {a} {b}");
            near(Function::Sigmoid.at(x), f64::midpoint(1.0, (x / 2.0).tanh()));
            near(Function::Softplus.at(x) - Function::Softplus.at(-x), x);
            near(Function::Silu.at(x) - Function::Silu.at(-x), x);
            near(Function::Gelu.at(x) - Function::Gelu.at(-x), x);
            assert!((Function::Gelu.at(x) - Function::GeluTanh.at(x)).abs() < 5e-4);
        }
    }
}
