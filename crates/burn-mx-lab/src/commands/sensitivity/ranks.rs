//! Rank correlation.

/// Spearman's rank correlation, with mean ranks for ties: the correlation of the ranks. NaN if one side has a single rank.
pub(crate) fn correlation(pairs: &[(f64, f64)]) -> f64 {
    let ranks = |of: &dyn Fn(&(f64, f64)) -> f64| {
        let values: Vec<f64> = pairs.iter().map(of).collect();
        let rank = |value: &f64| {
            let below = values.iter().filter(|other| *other < value).count();
            let same = values.iter().filter(|other| *other == value).count();
            below as f64 + (same as f64 - 1.0) / 2.0
        };
        values.iter().map(rank).collect::<Vec<f64>>()
    };
    let (a, b) = (ranks(&|pair| pair.0), ranks(&|pair| pair.1));
    // The mean of all ranks, with or without ties.
    let mean = (pairs.len() as f64 - 1.0) / 2.0;
    let covariance = |a: &[f64], b: &[f64]| {
        let products = a.iter().zip(b).map(|(a, b)| (a - mean) * (b - mean));
        products.sum::<f64>()
    };
    covariance(&a, &b) / (covariance(&a, &a) * covariance(&b, &b)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::correlation;

    #[test]
    fn published_examples() {
        // Any growing function has the correlation 1, any falling one −1.
        let growing: Vec<(f64, f64)> = (1..9).map(|x| (f64::from(x), f64::from(x).exp())).collect();
        let falling: Vec<(f64, f64)> = growing.iter().map(|(x, y)| (*x, -y)).collect();
        assert!((correlation(&growing) - 1.0).abs() < 1e-12);
        assert!((correlation(&falling) + 1.0).abs() < 1e-12);
        // The example of Wikipedia's article on Spearman's coefficient: IQ and hours of television, −29 / 165.
        let iq = [106., 100., 86., 101., 99., 103., 97., 113., 112., 110.];
        let hours = [7., 27., 2., 50., 28., 29., 20., 12., 6., 17.];
        let pairs: Vec<(f64, f64)> = iq.into_iter().zip(hours).collect();
        assert!((correlation(&pairs) + 29.0 / 165.0).abs() < 1e-12);
    }
}
