//! Text form of filters, in which exec(2) passes them on. For each opcode: `;`, its number, `+` or
//! `-` for the verdict before its programs (allow or deny), and its programs in the order in which
//! they were added: `/` and the instructions, each a number and a point. All numbers are
//! hexadecimal.

use alloc::sync::Arc;
use alloc::vec;
use core::fmt;
use core::str::FromStr;

use super::Program;
use super::{Filters, Verdict};
use softring_uapi::errno::{Errno, Result};
use softring_uapi::{IORING_OP_LAST, sock_filter};

impl fmt::Display for Filters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdicts = self.0.iter().flat_map(|v| v.iter().enumerate());
        for (opcode, verdict) in verdicts.filter(|(_, v)| !matches!(v, Verdict::Allow)) {
            write!(f, ";{opcode:x}{verdict}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Allow => f.write_str("+"),
            Verdict::Deny => f.write_str("-"),
            Verdict::Ask(asked) => {
                write!(f, "{}/", asked.1)?;
                asked.0.insns().iter().try_for_each(|i| write!(f, "{:x}.", number(i)))
            }
        }
    }
}

impl FromStr for Filters {
    type Err = Errno;

    fn from_str(text: &str) -> Result<Filters> {
        let Some(text) = text.strip_prefix(';') else { return Ok(Filters::default()) };
        let mut verdicts = vec![Verdict::Allow; usize::from(IORING_OP_LAST)];
        for of in text.split(';') {
            let base = of.find(['+', '-']).ok_or(Errno::EINVAL)?;
            let opcode = usize::from_str_radix(&of[..base], 16).map_err(|_| Errno::EINVAL)?;
            *verdicts.get_mut(opcode).ok_or(Errno::EINVAL)? = of[base..].parse()?;
        }
        Ok(Filters(Some(Arc::new(verdicts))))
    }
}

impl FromStr for Verdict {
    type Err = Errno;

    fn from_str(text: &str) -> Result<Verdict> {
        let mut parts = text.split('/');
        let first = if parts.next() == Some("-") { Verdict::Deny } else { Verdict::Allow };
        parts.try_fold(first, |before, program| {
            let insns = program.split_terminator('.').map(insn).collect::<Option<_>>();
            let program = Program::new(insns.ok_or(Errno::EINVAL)?)?;
            Ok(Verdict::Ask(Arc::new((program, before))))
        })
    }
}

fn number(i: &sock_filter) -> u64 {
    u64::from(i.code) << 48 | u64::from(i.jt) << 40 | u64::from(i.jf) << 32 | u64::from(i.k)
}

fn insn(text: &str) -> Option<sock_filter> {
    let n = u64::from_str_radix(text, 16).ok()?;
    let code = (n >> 48) as u16;
    Some(sock_filter { code, jt: (n >> 40) as u8, jf: (n >> 32) as u8, k: n as u32 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_the_same_when_read_again() -> Result<()> {
        let ret = |k| sock_filter { code: 0x06, jt: 0, jf: 0, k };
        let jump = sock_filter { code: 0x45, jt: 1, jf: 0, k: u32::MAX };
        let mut filters = Filters::default();
        assert_eq!(filters.to_string(), "");
        filters.put(10, Program::new(vec![ret(1)])?, false);
        filters.put(0, Program::new(vec![jump, ret(0), ret(1)])?, true);
        filters.put(10, Program::new(vec![ret(7)])?, false);
        filters.put(45, Program::new(vec![ret(1)])?, false);
        let text = filters.to_string();
        assert_eq!(text.parse::<Filters>()?.to_string(), text);
        assert!(
            text.starts_with(";0+/450100ffffffff.6000000000000.6000000000001.;1-;2-;"),
            "{text}"
        );
        assert!(text.contains(";a+/6000000000001./6000000000007.;"), "{text}");
        assert!(text.contains(";2d-/6000000000001.;"), "{text}");
        Ok(())
    }

    #[test]
    fn invalid_texts_are_not_filters() {
        for text in [";", ";+", ";zz+", ";0+/", ";0+/xyz.", ";0+/1.", ";41+"] {
            assert!(text.parse::<Filters>().is_err(), "{text}");
        }
    }
}
