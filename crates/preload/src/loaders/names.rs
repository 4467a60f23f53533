//! Names of the unwinder, defined here, and hidden: the process has names of its own, which ours
//! must not precede.

/// Name that the parts of alloc and core call to go on with unwinding, which never begins.
extern "C" fn never() -> ! {
    crate::panic::abort()
}

macro_rules! hidden {
    ($($name:literal),* $(,)?) => {$(
        // SAFETY: a jump to a function that takes nothing and does not return.
        core::arch::global_asm!(
            concat!(".hidden ", $name),
            concat!(".globl ", $name),
            concat!(".type ", $name, ", @function"),
            concat!($name, ": jmp {}"),
            sym never,
        );
    )*};
}
hidden!("_Unwind_Resume", "rust_eh_personality");
