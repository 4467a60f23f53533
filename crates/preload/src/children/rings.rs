//! Does text make io_uring calls? The number of io_uring_setup(2), 425, is put somewhere before a
//! `syscall`; or it is the first argument of a function that makes the call: in rdi of
//! syscall(2), in rax of Go's. In long text such a number may be the length of something, so
//! io_uring_enter(2) must be there as well. (Of a thousand programs of a machine, seven seem to,
//! node among them rightly.)

/// How far behind the number its `syscall` stands, and a call of a function.
const NEAR: usize = 64;
const CALL: usize = 40;
/// Bytes before and behind a place that are checked.
pub const MARGIN: usize = 96;
const BEFORE: usize = 8;
const SHORT: u64 = 1 << 19;

/// What was found so far.
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

    /// Scans a piece of text. The next one begins `MARGIN` before the end of this.
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

/// Is what follows these bytes the operand of an instruction that puts it somewhere?
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
    fn numbers_count_where_they_are_put_somewhere() {
        let inline = [0xb8, 0xa9, 1, 0, 0, 0x0f, 5];
        let (by_name, enter) = ([0xbf, 0xa9, 1, 0, 0, 0xe8], [0xbf, 0xaa, 1, 0, 0, 0xe8]);
        assert!(made(&inline, 0) && made(&inline, super::SHORT));
        assert!(made(&by_name, 0) && !made(&by_name, super::SHORT));
        assert!(made(&[by_name, enter].concat(), super::SHORT));
        assert!(!made(&enter, 0) && !made(&[0x3d, 0xa9, 1, 0, 0], 0));
        assert!(!made(&by_name[..5], 0), "nobody is called");
    }
}
