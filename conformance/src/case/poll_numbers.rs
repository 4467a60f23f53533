//! Descriptor numbers of rings and sets that a thread waits for: duplicates and reused numbers.

use super::prelude::*;
use crate::os_poll;
use crate::poll_shapes::{LONG, Set, Shape, feed, polled, while_waiting};

pub const CASES: &[Case] = &[
    legal!("poll_numbers", duplicates, [Op(IORING_OP_READ)], "polls of a file under duplicated numbers"),
    legal!("poll_numbers", reused_fds, [
        Op(IORING_OP_NOP),
    ], "a set or a ring gets the number of a closed one"),
];

fn duplicates(cx: &mut Cx) -> Outcome {
    for shape in [Shape::Level, Shape::Edge] {
        let mut ring = cx.ring(8, 0)?;
        let again = os_poll::dup(ring.fd)?;
        let set = Set::with(shape, again.as_raw_fd())?;
        let other = Set(os_poll::dup(set.0.as_raw_fd())?);
        let ((r, w), mut buf) = (cx.pipe()?, [0; 4]);
        for set in [&set, &other] {
            cx.start(&mut ring, &[sqe::read(r.as_raw_fd(), &mut buf, 0)]);
            let act = || feed(&w);
            cx.eq(shape.name(), while_waiting(|| set.wait(LONG), act), vec![7]);
            ring.pop_all();
        }
        cx.start(&mut ring, &[sqe::read(r.as_raw_fd(), &mut buf, 0)]);
        let fds = [again.as_raw_fd()];
        let act = || feed(&w);
        cx.is("poll", while_waiting(|| polled(Shape::Ppoll, &fds, LONG), act), 1);
    }
    Ok(())
}


fn reused_fds(cx: &mut Cx) -> Outcome {
    for shape in [Shape::Level, Shape::Edge] {
        let mut ring = cx.ring(4, 0)?;
        let (r, w) = cx.pipe()?;
        let set = Set::with(shape, ring.fd)?;
        let number = set.0.as_raw_fd();
        drop(set);
        let set = Set::with(shape, r.as_raw_fd())?;
        cx.is("the set's number again", i32::from(set.0.as_raw_fd() == number), 1);
        cx.is("a NOP", ring.push(sqe::nop()).submit(), 1);
        cx.eq("no ring is in it", set.wait(5), vec![]);
        feed(&w);
        cx.eq("what is in it", set.wait(5), vec![7]);
        let set = Set::with(shape, ring.fd)?;
        let number = ring.fd;
        drop(ring);
        let mut ring = cx.ring(4, 0)?;
        cx.is("the ring's number again", i32::from(ring.fd == number), 1);
        cx.is("a NOP", ring.push(sqe::nop()).submit(), 1);
        cx.eq("the first ring has left the set", set.wait(5), vec![]);
    }
    Ok(())
}
