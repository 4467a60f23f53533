//! Results as strace(1) writes them.

use std::io;

/// Names of error numbers, from 1 on.
const NAMES: &str = "\
EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT ENOTBLK \
EBUSY EEXIST EXDEV ENODEV ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG ENOSPC ESPIPE \
EROFS EMLINK EPIPE EDOM ERANGE EDEADLK ENAMETOOLONG ENOLCK ENOSYS ENOTEMPTY ELOOP 41 ENOMSG EIDRM \
ECHRNG EL2NSYNC EL3HLT EL3RST ELNRNG EUNATCH ENOCSI EL2HLT EBADE EBADR EXFULL ENOANO EBADRQC \
EBADSLT 58 EBFONT ENOSTR ENODATA ETIME ENOSR ENONET ENOPKG EREMOTE ENOLINK EADV ESRMNT ECOMM \
EPROTO EMULTIHOP EDOTDOT EBADMSG EOVERFLOW ENOTUNIQ EBADFD EREMCHG ELIBACC ELIBBAD ELIBSCN \
ELIBMAX ELIBEXEC EILSEQ ERESTART ESTRPIPE EUSERS ENOTSOCK EDESTADDRREQ EMSGSIZE EPROTOTYPE \
ENOPROTOOPT EPROTONOSUPPORT ESOCKTNOSUPPORT EOPNOTSUPP EPFNOSUPPORT EAFNOSUPPORT EADDRINUSE \
EADDRNOTAVAIL ENETDOWN ENETUNREACH ENETRESET ECONNABORTED ECONNRESET ENOBUFS EISCONN ENOTCONN \
ESHUTDOWN ETOOMANYREFS ETIMEDOUT ECONNREFUSED EHOSTDOWN EHOSTUNREACH EALREADY EINPROGRESS ESTALE \
EUCLEAN ENOTNAM ENAVAIL EISNAM EREMOTEIO EDQUOT ENOMEDIUM EMEDIUMTYPE ECANCELED ENOKEY \
EKEYEXPIRED EKEYREVOKED EKEYREJECTED EOWNERDEAD ENOTRECOVERABLE ERFKILL EHWPOISON";

/// Returns whether a result is an error.
pub fn is_error(res: i32) -> bool {
    (-4095..0).contains(&res)
}

/// Formats a result: `4096`, or `-1 ENOENT (No such file or directory)`.
pub fn result(res: i32) -> String {
    if is_error(res) { failure(-res) } else { res.to_string() }
}

fn failure(errno: i32) -> String {
    let known = NAMES.split(' ').nth(errno as usize - 1).filter(|name| name.starts_with('E'));
    let Some(name) = known else { return format!("-1 (errno {errno})") };
    let text = io::Error::from_raw_os_error(errno).to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    // musl, which the static command has, does not know all of them.
    if text == "No error information" {
        format!("-1 {name}")
    } else {
        format!("-1 {name} ({text})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_as_strace_writes_them() {
        assert_eq!(result(4096), "4096");
        assert_eq!(result(-2), "-1 ENOENT (No such file or directory)");
        assert_eq!(result(-125), "-1 ECANCELED (Operation canceled)");
        let poisoned = result(-133);
        let text = poisoned.strip_prefix("-1 EHWPOISON").unwrap();
        assert!(["", " (Memory page has hardware error)"].contains(&text), "{poisoned}");
        assert_eq!(result(-41), "-1 (errno 41)");
        assert_eq!(result(-500), "-1 (errno 500)");
        assert_eq!(result(i32::MIN), "-2147483648", "a notification's flag");
    }
}
