//! The triangular factor of a Hessian's inverse.

/// U of `H⁻¹ = Uᵀ U`, upper triangular and in row-major order. `hessian` is `[size, size]`, symmetric. `None` if the Hessian is
/// not positive definite.
///
/// With `H = R Rᵀ` and R upper triangular, U is the inverse of R, so H itself is never inverted. R and U take the place of H.
pub(super) fn of_inverse(mut hessian: Vec<f64>, size: usize) -> Option<Vec<f64>> {
    upper(&mut hessian, size)?;
    invert(&mut hessian, size);
    Some(hessian)
}

/// Replaces the upper triangle of H by R of `H = R Rᵀ`: Cholesky's algorithm from the last column on.
fn upper(matrix: &mut [f64], size: usize) -> Option<()> {
    for j in (0..size).rev() {
        let element = |matrix: &[f64], i: usize| -> f64 {
            let [of_i, of_j] = [i, j].map(|row| &matrix[row * size + j + 1..(row + 1) * size]);
            matrix[i * size + j] - of_i.iter().zip(of_j).map(|(a, b)| a * b).sum::<f64>()
        };
        let square = element(matrix, j);
        if !(square.is_finite() && square > 0.0) {
            return None;
        }
        let diagonal = square.sqrt();
        matrix[j * size + j] = diagonal;
        for i in 0..j {
            matrix[i * size + j] = element(matrix, i) / diagonal;
        }
    }
    Some(())
}

/// Inverts the upper triangle, and clears the rest.
fn invert(matrix: &mut [f64], size: usize) {
    for i in (0..size).rev() {
        let (above, below) = matrix.split_at_mut((i + 1) * size);
        let row = &mut above[i * size..];
        let factors = row.to_vec();
        row.fill(0.0);
        row[i] = 1.0;
        for k in i + 1..size {
            let factor = factors[k];
            let other = &below[(k - i - 1) * size..(k - i) * size];
            for (value, other) in row[k..].iter_mut().zip(&other[k..]) {
                *value -= factor * other;
            }
        }
        for value in &mut row[i..] {
            *value /= factors[i];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_factor_is_that_of_the_inverse() {
        // Of a matrix whose inverse is known: H = [[4, 2], [2, 3]], H⁻¹ = [[3, -2], [-2, 4]] / 8.
        let u = of_inverse(vec![4.0, 2.0, 2.0, 3.0], 2).unwrap();
        let product = |i: usize, j: usize| (0..2).map(|k| u[k * 2 + i] * u[k * 2 + j]).sum::<f64>();
        let got = [product(0, 0), product(0, 1), product(1, 0), product(1, 1)];
        for (got, wanted) in got.iter().zip([0.375, -0.25, -0.25, 0.5]) {
            assert!((got - wanted).abs() < 1e-15, "{got} {wanted}");
        }
        assert_eq!(u[2], 0.0);
    }

    #[test]
    fn what_is_not_positive_definite_has_no_factor() {
        assert_eq!(of_inverse(vec![1.0, 2.0, 2.0, 1.0], 2), None);
        assert_eq!(of_inverse(vec![0.0], 1), None);
        assert_eq!(of_inverse(vec![f64::NAN], 1), None);
    }
}
