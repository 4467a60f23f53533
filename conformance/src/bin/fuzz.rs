//! `softring-fuzz`: the differential fuzzer's command.

fn main() -> std::process::ExitCode {
    softring_conformance::fuzz::command::main()
}
