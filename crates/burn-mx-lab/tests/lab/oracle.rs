//! Elementwise functions and norms in scalar code that was written from their definitions alone.

use super::emulation::Emulation;

impl Emulation {
    fn exp(self, x: f32) -> f32 {
        match self.exp2 {
            true => self.power_of_two(self.r(1.4453125 * x)),
            false => self.r(f64::from(x).exp() as f32),
        }
    }

    fn power_of_two(self, x: f32) -> f32 {
        self.r(f64::from(x).exp2() as f32)
    }

    fn div(self, a: f32, b: f32) -> f32 {
        match self.recip {
            true => self.r(a * self.r(1.0 / b)),
            false => self.r(a / b),
        }
    }

    fn div_b(self, a: f32, b: f32) -> f32 {
        match self.recip {
            true => self.b(a * self.b(1.0 / b)),
            false => self.b(a / b),
        }
    }

    pub(super) fn sum(self, terms: impl Iterator<Item = f32>) -> f32 {
        self.r(plain_sum(terms))
    }

    pub(super) fn sum_b(self, terms: impl Iterator<Item = f32>) -> f32 {
        self.b(plain_sum(terms))
    }

    pub(super) fn mean(self, terms: &[f32]) -> f32 {
        self.r(self.sum(terms.iter().copied()) / terms.len() as f32)
    }

    fn mean_b(self, terms: &[f32]) -> f32 {
        self.b(self.sum_b(terms.iter().copied()) / terms.len() as f32)
    }

    fn sigmoid(self, x: f32) -> f32 {
        self.r(1.0 / self.r(self.exp(-x) + 1.0))
    }

    /// `1.59375 (x + 0.044677734 x³)` through the sigmoid.
    fn gelu_gate(self, x: f32) -> f32 {
        let cube = self.r(self.r(x * x) * x);
        let inner = self.r(self.r(0.044677734 * cube) + x);
        self.sigmoid(self.r(1.59375 * inner))
    }

    /// Output and gradient of an op on single numbers, `x` and `g` as they are given.
    pub(super) fn unary(self, op: &str, x: f32, g: f32) -> [f32; 2] {
        let (input, xb, g) = (self.r(x), self.b(x), self.b(g));
        let r = |x| self.r(x);
        let b = |x| self.b(x);
        match op {
            "relu" => {
                let y = input.max(0.0);
                [y, if y > 0.0 { g } else { 0.0 }]
            }
            "leaky_relu" if input < 0.0 => [r(0.01 * input), b(0.01 * g)],
            "leaky_relu" => [input, g],
            "sigmoid" => {
                let y = self.sigmoid(input);
                [y, b(b(y * b(1.0 - y)) * g)]
            }
            "tanh" => {
                let y = r(f64::from(input).tanh() as f32);
                [y, b(b(1.0 - b(y * y)) * g)]
            }
            "silu" => {
                let s = self.sigmoid(input);
                let y = r(input * s);
                [y, b(b(s + b(y * b(1.0 - s))) * g)]
            }
            "gelu" => {
                let gate = self.gelu_gate(input);
                let slope = b(gate * b(1.0 - gate));
                let inner = b(1.59375 + b(0.21386719 * b(xb * xb)));
                let slope = b(inner * slope);
                [r(input * gate), b(b(gate + b(xb * slope)) * g)]
            }
            "gelu_first_order" => {
                let gate = self.sigmoid(r(1.703125 * input));
                let slope = b(1.703125 * b(gate * b(1.0 - gate)));
                [r(input * gate), b(b(gate + b(xb * slope)) * g)]
            }
            "exp" => {
                let y = self.exp(input);
                [y, b(g * y)]
            }
            "log" => [r(f64::from(input).ln() as f32), self.div_b(g, xb)],
            "sqrt" => {
                let y = r(input.sqrt());
                [y, self.div_b(b(g / 2.0), y)]
            }
            "square" => [r(input * input), b(g * b(2.0 * xb))],
            _ => unreachable!("{op}"),
        }
    }

    /// Output, the gradient of `a`, and the terms of the gradient of `b`.
    pub(super) fn binary(self, op: &str, a: f32, b: f32, g: f32) -> [f32; 3] {
        let (left, right) = (self.r(a), self.r(b));
        let (ab, bb, gb) = (self.b(a), self.b(b), self.b(g));
        match op {
            "add" => [self.r(left + right), gb, gb],
            "sub" => [self.r(left - right), g, -gb],
            "mul" => [self.r(left * right), self.b(gb * bb), self.b(gb * ab)],
            "div" => {
                let y = self.div(left, right);
                let of_b = self.b(gb * self.div_b(-y, bb));
                [y, self.div_b(gb, bb), of_b]
            }
            _ => unreachable!("{op}"),
        }
    }

    pub(super) fn softmax(self, x: &[f32], g: &[f32]) -> [Vec<f32>; 2] {
        let x: Vec<f32> = x.iter().map(|&x| self.r(x)).collect();
        let max = x.iter().fold(f32::NEG_INFINITY, |max, &x| max.max(x));
        let power = |&x: &f32| match self.softmax_exp2 {
            true => self.power_of_two(self.r(x - max)),
            false => self.exp(self.r(x - max)),
        };
        let powers: Vec<f32> = x.iter().map(power).collect();
        let sum = self.sum(powers.iter().copied());
        let y: Vec<f32> = powers.iter().map(|&p| self.div(p, sum)).collect();
        let g: Vec<f32> = g.iter().map(|&g| self.b(g)).collect();
        let dot = self.sum_b(g.iter().zip(&y).map(|(g, y)| self.b(g * y)));
        let gradient = |(&y, &g): (&f32, &f32)| {
            let dx = self.b(y * self.b(g - dot));
            if self.softmax_exp2 {
                self.b(0.69140625 * dx)
            } else {
                dx
            }
        };
        let dx = y.iter().zip(&g).map(gradient).collect();
        [y, dx]
    }

    /// Output, the gradient of x, and the products that are summed to the gradient of γ.
    pub(super) fn layer_norm(self, x: &[f32], w: &[f32], bias: &[f32], g: &[f32]) -> [Vec<f32>; 3] {
        let x: Vec<f32> = x.iter().map(|&x| self.r(x)).collect();
        let mean = self.mean(&x);
        let c: Vec<f32> = x.iter().map(|x| self.r(x - mean)).collect();
        let squares: Vec<f32> = c.iter().map(|c| self.r(c * c)).collect();
        let v = self.r(self.mean(&squares) + EPS);
        let inverse = self.r(1.0 / self.r(v.sqrt()));
        let n: Vec<f32> = c.iter().map(|c| self.r(c * inverse)).collect();
        let (t, products) = self.of_scaling(&n, w, g);

        let sigma = self.b(v.sqrt());
        let inverse = self.b(1.0 / sigma);
        let terms: Vec<f32> = t
            .iter()
            .zip(&n)
            .map(|(t, n)| self.b(self.b(t * n) * sigma))
            .collect();
        let q = self.b(self.mean_b(&terms) * self.b(1.0 / v));
        let d: Vec<f32> = t
            .iter()
            .zip(&n)
            .map(|(t, n)| self.b(self.b(t * inverse) + self.b(-q * n)))
            .collect();
        let mean = self.mean_b(&d);
        let dx = d.iter().map(|d| self.b(d - mean)).collect();
        [self.scaled(&n, w, bias), dx, products]
    }

    pub(super) fn rms_norm(self, x: &[f32], w: &[f32], bias: &[f32], g: &[f32]) -> [Vec<f32>; 3] {
        let x: Vec<f32> = x.iter().map(|&x| self.r(x)).collect();
        let squares: Vec<f32> = x.iter().map(|x| self.r(x * x)).collect();
        let inverse = self.r(1.0 / self.r(self.r(self.mean(&squares) + EPS).sqrt()));
        let n: Vec<f32> = x.iter().map(|x| self.r(x * inverse)).collect();
        let (t, products) = self.of_scaling(&n, w, g);
        let a: Vec<f32> = t.iter().map(|t| self.b(t * inverse)).collect();
        let terms: Vec<f32> = a.iter().zip(&n).map(|(a, n)| self.b(a * n)).collect();
        let q = self.mean_b(&terms);
        // The last difference is not rounded.
        let dx = a.iter().zip(&n).map(|(a, n)| a - self.b(n * q)).collect();
        [self.scaled(&n, w, bias), dx, products]
    }

    fn scaled(self, n: &[f32], w: &[f32], bias: &[f32]) -> Vec<f32> {
        let scaled = |i: usize| self.r(self.r(self.r(w[i]) * n[i]) + self.r(bias[i]));
        (0..n.len()).map(scaled).collect()
    }

    /// `g γ`, and `g n`.
    fn of_scaling(self, n: &[f32], w: &[f32], g: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let t = |i: usize| self.b(self.b(g[i]) * self.b(w[i]));
        let product = |i: usize| self.b(self.b(g[i]) * n[i]);
        let all = 0..n.len();
        (all.clone().map(t).collect(), all.map(product).collect())
    }
}

/// As exactly as float32 has it, in any order.
fn plain_sum(terms: impl Iterator<Item = f32>) -> f32 {
    terms.map(f64::from).sum::<f64>() as f32
}

pub(super) const EPS: f32 = 1e-5;
