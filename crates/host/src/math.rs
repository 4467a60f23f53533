//! Functions of numbers that core has not: the C library's, by way of the standard library.

/// The natural logarithm.
#[inline]
pub fn ln(x: f64) -> f64 {
    x.ln()
}

/// e to the power of `x`.
#[inline]
pub fn exp(x: f64) -> f64 {
    x.exp()
}

/// The cosine of an angle in radians.
#[inline]
pub fn cos(x: f64) -> f64 {
    x.cos()
}

/// The square root.
#[inline]
pub fn sqrt(x: f64) -> f64 {
    x.sqrt()
}

/// The least whole number that is not below `x`.
#[inline]
pub fn ceil(x: f64) -> f64 {
    x.ceil()
}

/// What is behind the point.
#[inline]
pub fn fract(x: f64) -> f64 {
    x.fract()
}
