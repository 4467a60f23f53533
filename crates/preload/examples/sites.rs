//! A program whose io_uring calls are inline `syscall` instructions of the shapes that compilers
//! make. The tests of the entry points run it under libsoftring.so. `sites CASE` exits with 0 if
//! the case holds.
#![allow(unsafe_code)]

use core::arch::global_asm;
use std::process::ExitCode;

global_asm!(
    ".macro function name",
    ".globl \\name",
    ".type \\name, @function",
    ".p2align 4",
    "\\name:",
    ".cfi_startproc",
    ".endm",
    ".macro end name",
    ".cfi_endproc",
    ".size \\name, . - \\name",
    ".endm",
    // enter(-1, 0, 0, 0, 0, 0), as in liburing: other instructions lie between the number and
    // `syscall`.
    "function enter_plain",
    "mov edi, -1",
    "xor esi, esi",
    "xor r10d, r10d",
    "mov eax, 426",
    "xor edx, edx",
    "lea r8, [rip + enter_plain]",
    "xor r9d, r9d",
    "syscall",
    "ret",
    "end enter_plain",
    // The number hoisted into a register; a jump has room only together with the next instructions.
    "function enter_hoisted",
    "push rbx",
    "mov ebx, 426",
    "mov edi, -1",
    "xor esi, esi",
    "xor edx, edx",
    "xor r10d, r10d",
    "enter_hoisted_again:",
    "mov eax, ebx",
    "syscall",
    "mov rcx, rax",
    "cmp rax, -4",
    "je enter_hoisted_again",
    "pop rbx",
    "ret",
    "end enter_hoisted",
    // A constant whose bytes resemble a jump to that `syscall`.
    "function like_a_jump",
    ".byte 0x48, 0xb8, 0xe9",
    ".long enter_hoisted_again + 2 - (. + 4)",
    ".byte 0, 0, 0",
    "ret",
    "end like_a_jump",
    // Two numbers meet at the instruction, a ret follows, and no padding is near: no room, so a
    // gap. rdi: 0 for enter, 1 for getppid.
    ".skip 160, 0xf8",
    "function enter_joined",
    "mov eax, 426",
    "xor esi, esi",
    "xor edx, edx",
    "xor r10d, r10d",
    "test edi, edi",
    "mov edi, -1",
    "jz 3f",
    "mov eax, 110",
    "3:",
    "syscall",
    "ret",
    "end enter_joined",
    ".skip 160, 0xf8",
    // setup(4, rdx) with every register and the red zone in use. rdi: 16 vectors to load; rsi:
    // where they go after the call, then rbx rbp rdx r8 r9 r10 r14 r15, carry, two words of the red
    // zone; returns rax.
    "function setup_full",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "mov r12, rdi",
    "mov r13, rsi",
    ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
    "vmovdqu ymm\\n, [r12 + 32 * \\n]",
    ".endr",
    "mov edi, 4",
    "mov rsi, rdx",
    "mov rbx, 101",
    "mov rbp, 102",
    "mov rdx, 103",
    "mov r8, 104",
    "mov r9, 105",
    "mov r10, 106",
    "mov r14, 107",
    "mov r15, 108",
    "mov qword ptr [rsp - 8], 109",
    "mov qword ptr [rsp - 128], 110",
    "stc",
    "mov eax, 425",
    "syscall",
    "mov [r13 + 512], rbx",
    "mov [r13 + 520], rbp",
    "mov [r13 + 528], rdx",
    "mov [r13 + 536], r8",
    "mov [r13 + 544], r9",
    "mov [r13 + 552], r10",
    "mov [r13 + 560], r14",
    "mov [r13 + 568], r15",
    "setc byte ptr [r13 + 576]",
    "mov rcx, [rsp - 8]",
    "mov [r13 + 584], rcx",
    "mov rcx, [rsp - 128]",
    "mov [r13 + 592], rcx",
    ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
    "vmovdqu [r13 + 32 * \\n], ymm\\n",
    ".endr",
    "vzeroupper",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "ret",
    "end setup_full",
    // syscall(SYS_vfork) through libc's name: parent and child return from it on one stack.
    "function vfork_by_number",
    "sub rsp, 8",
    "mov edi, 58",
    "xor eax, eax",
    "call syscall@PLT",
    "test rax, rax",
    "jnz 4f",
    "mov edi, 7",
    "mov eax, 60",
    "syscall",
    "4:",
    "add rsp, 8",
    "ret",
    "end vfork_by_number",
);

unsafe extern "C" {
    fn enter_plain() -> isize;
    fn enter_hoisted() -> isize;
    fn enter_joined(other: usize) -> isize;
    fn setup_full(vectors: *const u8, out: *mut u8, params: *mut u8) -> isize;
    fn vfork_by_number() -> isize;
}

/// Runs a case; all calls are to the functions above, with the arguments that they name.
fn run(case: &str) -> Result<(), String> {
    match case {
        // SAFETY: enter on no descriptor touches nothing.
        "plain" => expect(unsafe { enter_plain() }, -9),
        // SAFETY: as above.
        "hoisted" => expect(unsafe { enter_hoisted() }, -9),
        // SAFETY: as above; getppid has no arguments.
        "joined" => unsafe {
            expect(enter_joined(1), libc::getppid() as isize)?;
            expect(enter_joined(0), -9)
        },
        "full" => full(),
        "vfork" => vfork(),
        "later" => later(),
        "blocked" => blocked(),
        "masked" => masked(),
        "handler" => handler(),
        "loop" => measure(),
        "nothing" => Ok(()),
        _ => Err("no such case".into()),
    }
}

fn expect(got: isize, want: isize) -> Result<(), String> {
    if got == want { Ok(()) } else { Err(format!("answered {got}, not {want}")) }
}

fn full() -> Result<(), String> {
    let input: Vec<u8> = (0..512u32).map(|i| (i * 7 + 3) as u8).collect();
    let mut out = vec![0u8; 600];
    let mut params = [0u8; 120];
    // SAFETY: buffers of the sizes that setup_full names.
    let fd = unsafe { setup_full(input.as_ptr(), out.as_mut_ptr(), params.as_mut_ptr()) };
    if fd < 0 {
        return Err(format!("setup answered {fd}"));
    }
    if out[..512] != input[..] {
        return Err("vector registers changed".into());
    }
    let words: Vec<u64> =
        out[512..].chunks_exact(8).map(|c| u64::from_ne_bytes(c.try_into().unwrap())).collect();
    if words[..8] != [101, 102, 103, 104, 105, 106, 107, 108] {
        return Err(format!("registers changed: {words:?}"));
    }
    if words[8] & 1 != 1 || words[9..] != [109, 110] {
        return Err(format!("carry or red zone changed: {words:?}"));
    }
    Ok(())
}

/// Makes a ring, and calls from a site that can't be patched, in a thread that has blocked all
/// signals since before.
fn masked() -> Result<(), String> {
    let (made, then) = std::sync::mpsc::channel();
    let (ready, go) = std::sync::mpsc::channel();
    let other = std::thread::spawn(move || {
        // SAFETY: a set of ours; enter on no descriptor touches nothing.
        unsafe {
            let mut all: libc::sigset_t = core::mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, core::ptr::null_mut());
            ready.send(()).map_err(|e| e.to_string())?;
            let _ = then.recv();
            match enter_joined(0) {
                0.. => Err("an answer".to_owned()),
                _ => Ok(()),
            }
        }
    });
    let _ = go.recv();
    let ring = full();
    let _ = made.send(());
    other.join().map_err(|_| "a panic")?.and(ring)
}

fn vfork() -> Result<(), String> {
    let mut status = 0;
    // SAFETY: the child exits at once; `status` is ours.
    unsafe {
        let pid = vfork_by_number();
        expect(libc::waitpid(pid as i32, &raw mut status, 0) as isize, pid)?;
    }
    expect(libc::WEXITSTATUS(status) as isize, 7)
}

/// Opens a library by the path in LATER, which calls from its constructor and on request.
fn later() -> Result<(), String> {
    let path = std::env::var("LATER").map_err(|e| e.to_string())?;
    let path = std::ffi::CString::new(path).unwrap();
    // SAFETY: NUL-terminated names; the library's functions take nothing and return a long.
    unsafe {
        let lib = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
        if lib.is_null() {
            return Err("dlopen failed".into());
        }
        let f = libc::dlsym(lib, c"enter_later".as_ptr());
        let f = core::mem::transmute::<*mut libc::c_void, extern "C" fn() -> isize>(f);
        expect(f(), -9)
    }
}

/// Calls still work while the program blocks SIGSYS.
fn blocked() -> Result<(), String> {
    // SAFETY: sets of ours.
    unsafe {
        let mut all: libc::sigset_t = core::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const all, core::ptr::null_mut());
        expect(enter_joined(0), -9)?;
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, core::ptr::null_mut());
        expect(enter_joined(0), -9)
    }
}

static HANDLED: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

extern "C" fn on_sigsys(_: i32) {
    HANDLED.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
}

/// The program's own SIGSYS handler gets the program's signals, and not ours.
fn handler() -> Result<(), String> {
    // SAFETY: a handler that only counts.
    unsafe {
        libc::signal(libc::SIGSYS, on_sigsys as *const () as usize);
        expect(enter_joined(0), -9)?;
        libc::raise(libc::SIGSYS);
    }
    expect(HANDLED.load(std::sync::atomic::Ordering::Relaxed) as isize, 1)
}

/// Prints the time of one inline call that answers EBADF.
fn measure() -> Result<(), String> {
    const CALLS: u32 = 100_000;
    let start = std::time::Instant::now();
    for _ in 0..CALLS {
        // SAFETY: enter on no descriptor touches nothing.
        expect(unsafe { enter_plain() }, -9)?;
    }
    println!("{} ns a call", start.elapsed().as_nanos() / u128::from(CALLS));
    Ok(())
}

fn main() -> ExitCode {
    let case = std::env::args().nth(1).unwrap_or_default();
    match run(&case) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{case}: {e}");
            ExitCode::FAILURE
        }
    }
}
