use super::Level;

#[test]
fn names() {
    for best in Level::available() {
        for (name, level) in Level::up_to(best) {
            assert_eq!(Level::named(name, best), Ok(level));
        }
        assert_eq!(Level::named("baseline", best), Ok(Level::Baseline));
    }
    for name in ["avx2", "AVX512", ""] {
        assert_eq!(
            Level::named(name, Level::Baseline).unwrap_err(),
            format!("MICROSCALING_LEVEL is `{name}`; allowed on this processor: baseline")
        );
    }
}
