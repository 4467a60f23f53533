//! Functions of numbers that core lacks: the C library's, by way of the standard library.

/// Returns the natural logarithm.
#[inline]
pub fn ln(x: f64) -> f64 {
    x.ln()
}

/// Returns e to the power of `x`.
#[inline]
pub fn exp(x: f64) -> f64 {
    x.exp()
}

/// Returns the cosine of an angle in radians.
#[inline]
pub fn cos(x: f64) -> f64 {
    x.cos()
}

/// Returns the square root.
#[inline]
pub fn sqrt(x: f64) -> f64 {
    x.sqrt()
}

/// Returns the least whole number that is not below `x`.
#[inline]
pub fn ceil(x: f64) -> f64 {
    x.ceil()
}

/// Returns the fractional part.
#[inline]
pub fn fract(x: f64) -> f64 {
    x.fract()
}
