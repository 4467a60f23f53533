//! Acts of the outside world.

use super::{Machine, child, digest, host, net, ret};
use crate::fuzz::program::{Fd, Host};
use crate::fuzz::transcript::Rec;

impl Machine {
    pub(super) fn host(&mut self, h: &Host) -> Rec {
        match h {
            Host::Write(slot, n) => ret(host::write(*slot, *n)),
            Host::Read(slot, n) => {
                let (got, bytes) = host::read(*slot, *n);
                Rec { notes: vec![digest::short(&bytes)], ..ret(got) }
            }
            Host::Close(slot) => ret(host::close(slot.number())),
            Host::CloseRing(ring) => {
                self.rings[usize::from(ring & 1)] = None;
                Rec::default()
            }
            Host::Poll(fd) => ret(host::poll(self.fd(fd))),
            Host::Sleep(us) => {
                std::thread::sleep(std::time::Duration::from_micros(u64::from(*us)));
                Rec::default()
            }
            Host::CqFlags(ring, flags) => {
                if let Some(r) = &self.rings[usize::from(ring & 1)] {
                    r.set_cq_flags(*flags);
                }
                Rec::default()
            }
            Host::Poke(buf, words) => {
                host::poke(*buf, words);
                Rec::default()
            }
            Host::Shutdown(slot, how) => ret(net::shutdown(*slot, *how)),
            Host::Reset(slot) => ret(net::reset(*slot)),
            Host::Connect(slot, n) => match net::come(*slot, *n) {
                Err(e) => ret(host::code(&e)),
                Ok(fd) => {
                    self.came.push(fd);
                    Rec::default()
                }
            },
            Host::HangUp if self.came.is_empty() => Rec::default(),
            Host::HangUp => ret(host::close(self.came.remove(0))),
            Host::Child(i, fate) => ret(child::befall(*i, *fate)),
            Host::Wake(i, n) => ret(net::wake(*i, *n)),
            Host::Supply(s) => {
                let addr = s.bufs.iter().map(|(val, ..)| self.lower(val)).collect::<Vec<_>>();
                self.supplies.add(s, &addr);
                Rec::default()
            }
            // Without a group there is nothing to map.
            Host::MapBuffers { .. } if self.last != 0 => ret(self.last),
            Host::MapBuffers { ring, group, mem } => {
                ret(self.supplies.map(self.fd(&Fd::Ring(*ring)), *group, *mem))
            }
        }
    }
}
