//! Functions of numbers that core lacks, by the crate `libm`: those of the standard library call
//! the C library's libm, of some version or newer.
#![allow(unsafe_code)]

/// Returns the natural logarithm.
#[inline]
pub fn ln(x: f64) -> f64 {
    libm::log(x)
}

/// Returns e to the power of `x`.
#[inline]
pub fn exp(x: f64) -> f64 {
    libm::exp(x)
}

/// Returns the cosine of an angle in radians.
#[inline]
pub fn cos(x: f64) -> f64 {
    libm::cos(x)
}

/// Returns the square root.
#[inline]
pub fn sqrt(x: f64) -> f64 {
    libm::sqrt(x)
}

/// Returns the least whole number that is not below `x`.
#[inline]
pub fn ceil(x: f64) -> f64 {
    libm::ceil(x)
}

/// Returns the fractional part.
#[inline]
pub fn fract(x: f64) -> f64 {
    x - libm::trunc(x)
}

/// Calls `f` with the processor's default rules for floating-point numbers, and gives the thread
/// its own back: rounding, traps (feenableexcept(3)), and the flags that say what has happened.
#[cfg(target_arch = "x86_64")]
pub fn by_default<T>(f: impl FnOnce() -> T) -> T {
    let (default, mut own) = (0x1f80u32, 0u32);
    // SAFETY: the word is ours; the rules are those that compiled code expects.
    unsafe {
        core::arch::asm!("stmxcsr [{}]", in(reg) &raw mut own, options(nostack, preserves_flags));
        core::arch::asm!("ldmxcsr [{}]", in(reg) &raw const default, options(nostack, readonly));
    }
    let done = f();
    // SAFETY: the rules from before.
    unsafe {
        core::arch::asm!("ldmxcsr [{}]", in(reg) &raw const own, options(nostack, readonly));
    }
    done
}

/// Calls `f`. Rules for floating-point numbers that a program sets are in force.
#[cfg(not(target_arch = "x86_64"))]
pub fn by_default<T>(f: impl FnOnce() -> T) -> T {
    f()
}

#[cfg(all(test, target_arch = "x86_64", not(loom)))]
mod tests {
    use super::*;
    use core::hint::black_box;

    fn rules() -> u32 {
        let mut own = 0u32;
        // SAFETY: the word is ours.
        unsafe { core::arch::asm!("stmxcsr [{}]", in(reg) &raw mut own, options(nostack)) };
        own
    }

    fn set_rules(rules: u32) {
        // SAFETY: valid rules, which the test takes back.
        unsafe { core::arch::asm!("ldmxcsr [{}]", in(reg) &raw const rules, options(nostack)) };
    }

    #[test]
    fn what_is_inexact_does_not_trap() {
        let before = rules();
        // Everything traps, and rounds to zero.
        set_rules(0x6000);
        let third = by_default(|| black_box(1.0f64) / black_box(3.0));
        let after = rules();
        set_rules(before);
        assert_eq!((third, after), (1.0 / 3.0, 0x6000));
    }
}
