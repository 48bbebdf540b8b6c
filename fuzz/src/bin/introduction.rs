fn main() {
    afl::fuzz!(|input: &[u8]| client_proxy_fuzz::introduction::check(input));
}
