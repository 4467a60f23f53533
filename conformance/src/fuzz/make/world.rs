//! Acts of the outside world.

use super::Gen;
use super::pool::{self, child_key};
use crate::fuzz::exec::arena::FUTEXES;
use crate::fuzz::program::{Fate, Fd, Host, Slot, Step};

impl Gen<'_> {
    /// Makes an act from outside, followed by time to notice it.
    pub(super) fn host(&mut self) {
        let act = if self.net && self.chance(75) { self.net_act() } else { self.file_act() };
        let key = match act {
            Host::Write(s, _) | Host::Read(s, _) | Host::Close(s) => pool::slot_key(s),
            Host::Shutdown(s, _) | Host::Reset(s) | Host::Connect(s, _) => pool::slot_key(s),
            Host::Child(i, _) => child_key(i),
            Host::Wake(..) => pool::buf_key(FUTEXES),
            _ => 0,
        };
        self.conflicts.happened(key);
        self.steps.push(Step::Host(act));
        self.await_idle();
    }

    /// Makes an act on the files from outside, followed by time to notice it.
    fn file_act(&mut self) -> Host {
        let to =
            [Slot::PipeW, Slot::NbW, Slot::Event, Slot::Sem, Slot::SockA, Slot::SockB, Slot::A];
        let from = [Slot::FullR, Slot::PipeR, Slot::SockA, Slot::SockB, Slot::RingEvent, Slot::NbR];
        let ring = u8::from(self.two && self.chance(40));
        match self.rng.u32(0..100) {
            0..50 => Host::Write(self.pick(&to), self.pick(&[1, 5, 100, 4096])),
            50..68 => Host::Read(self.pick(&from), self.pick(&[8, 100, 65_536])),
            68..80 => Host::Close(self.slot(true).0),
            80..90 => Host::Poll(Fd::Ring(ring)),
            90..94 => Host::Poll(Fd::Slot(Slot::RingEvent)),
            94..96 => Host::CloseRing(1),
            96..98 => Host::CqFlags(ring, self.rng.u32(0..2)),
            _ => Host::Sleep(2000),
        }
    }

    fn net_act(&mut self) -> Host {
        let end = self.pick(&Slot::ENDS);
        let listener = self.pick(&[Slot::TcpL, Slot::TcpL, Slot::UnixL]);
        match self.rng.u32(0..100) {
            0..38 => Host::Write(end, self.pick(&[1, 5, 100, 1000, 4096])),
            38..50 => Host::Read(end, self.pick(&[8, 100, 65_536])),
            50..54 => Host::Read(Slot::TightB, 1 << 20),
            54..58 => Host::Shutdown(end, self.pick(&[0, 1, 1, 2])),
            58..61 => Host::Close(end),
            61..63 => Host::Reset(self.pick(&[Slot::TcpA, Slot::TcpB])),
            63..78 => Host::Connect(listener, self.pick(&[0, 3, 500])),
            78..80 => Host::HangUp,
            80..88 => {
                let fates = [Fate::Exit, Fate::Exit, Fate::Kill, Fate::Stop, Fate::Continue];
                Host::Child(self.rng.u8(0..3), self.pick(&fates))
            }
            88..95 => Host::Wake(self.rng.u8(0..4), self.pick(&[1, 1, 2, 9])),
            95..97 => Host::Poke(FUTEXES, vec![self.pick(&[0x4848_4848, 1, 2]); 4]),
            _ => self.supply(),
        }
    }
}
