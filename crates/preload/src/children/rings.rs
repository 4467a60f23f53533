//! Search for io_uring calls in text. A program moves 425, the number of io_uring_setup(2),
//! somewhere before a `syscall`, or passes it as the first argument of a function that makes the
//! call: in rdi for syscall(2), in rax for Go's. In long text 425 may be the length of something,
//! so io_uring_enter(2) must be found as well. (Of a thousand programs of a machine seven match,
//! node among them rightly.)

/// Bytes behind the number in which its `syscall` is searched (`NEAR`), or a function call
/// (`CALL`).
const NEAR: usize = 64;
const CALL: usize = 40;
/// Bytes before and behind a number that are checked.
pub const MARGIN: usize = 96;
const BEFORE: usize = 8;
const SHORT: u64 = 1 << 19;

/// Findings of the scan so far.
#[derive(Default)]
pub struct Rings {
    setup: bool,
    enter: bool,
    inline: bool,
    bytes: u64,
}

impl Rings {
    pub fn are_made(&self) -> bool {
        self.inline || self.setup && (self.enter || self.bytes < SHORT)
    }

    /// Scans a piece of text. The next piece begins `MARGIN` bytes before the end of this one.
    pub fn scan(&mut self, text: &[u8]) {
        self.bytes += text.len() as u64;
        for at in BEFORE..text.len().saturating_sub(4) {
            if text[at + 1..at + 4] != [1, 0, 0] || !is_moved(&text[at - BEFORE..at]) {
                continue;
            }
            let behind = |n| &text[at + 4..text.len().min(at + 4 + n)];
            let called = matches!(text[at - 1], 0xb8 | 0xbf)
                && behind(CALL).windows(2).any(|w| w[0] == 0xe8 || w == [0xff, 0x15]);
            match text[at] {
                0xa9 => {
                    self.inline |= behind(NEAR).windows(2).any(|w| w == [0x0f, 5]);
                    self.setup |= called;
                }
                0xaa => self.enter |= called,
                _ => {}
            }
        }
    }
}

/// Returns whether `b` ends with an instruction that moves the immediate operand which follows `b`.
fn is_moved(b: &[u8]) -> bool {
    matches!(
        b,
        // mov register, imm32
        [.., 0xb8..=0xbf] | [.., 0xc7, 0xc0..=0xc7]
        // push imm32
        | [.., 0x68]
        // mov [rsp], imm32, and with an offset to rsp or rbp
        | [.., 0xc7, 4, 0x24] | [.., 0xc7, 0x44, 0x24, _] | [.., 0xc7, 0x45, _]
    )
}

#[cfg(test)]
mod tests {
    use super::Rings;

    fn made(text: &[u8], bytes: u64) -> bool {
        let mut rings = Rings { bytes, ..Rings::default() };
        rings.scan(&[&[0x90; 8], text, &[0x90; 8]].concat());
        rings.are_made()
    }

    #[test]
    fn call_numbers_count_only_if_loaded() {
        let inline = [0xb8, 0xa9, 1, 0, 0, 0x0f, 5];
        let (by_name, enter) = ([0xbf, 0xa9, 1, 0, 0, 0xe8], [0xbf, 0xaa, 1, 0, 0, 0xe8]);
        assert!(made(&inline, 0) && made(&inline, super::SHORT));
        assert!(made(&by_name, 0) && !made(&by_name, super::SHORT));
        assert!(made(&[by_name, enter].concat(), super::SHORT));
        assert!(!made(&enter, 0) && !made(&[0x3d, 0xa9, 1, 0, 0], 0));
        assert!(!made(&by_name[..5], 0), "nobody is called");
    }
}
