/* The float32 nearest to n * 2^unit, half to even; Inf from 2^128 on. `sticky`: the number is a little larger, by less than half of
 * 2^unit; n then has more bits than float32. */
static inline uint32_t mx_nearest_float32(uint64_t n, int32_t unit, uint32_t sticky)
{
    int32_t exponent = mx_log2(n) + unit;
    int32_t last = exponent < -126 ? -149 : exponent - 23;
    int32_t right = last - unit;
    uint64_t down, rest, half;
    if (n == 0 || right > 63) {
        return 0;
    }
    if (exponent > 127) {
        return MX_INFINITY;
    }
    if (right <= 0) {
        return (uint32_t)(n << -right) + ((uint32_t)(last + 149) << 23);
    }
    down = n >> right;
    rest = n - (down << right);
    half = (uint64_t)1 << (right - 1);
    down += rest > half || (rest == half && (sticky != 0 || (down & 1u) != 0));
    /* A carry goes into the exponent field, at the top into Inf. */
    return (uint32_t)down + ((uint32_t)(last + 149) << 23);
}

/* The float32 product of two magnitudes, rounded half to even. Neither is NaN; Inf times anything is Inf. */
static inline uint32_t mx_product(uint32_t a, uint32_t b)
{
    if (a >= MX_INFINITY || b >= MX_INFINITY) {
        return MX_INFINITY;
    }
    return mx_nearest_float32((uint64_t)mx_significand(a) * mx_significand(b), mx_unit(a) + mx_unit(b), 0);
}
{% if scale == "float" %}
/* The float32 quotient of two magnitudes, rounded half to even. Neither is NaN, b is finite and not 0; Inf over anything is Inf. */
static inline uint32_t mx_quotient(uint32_t a, uint32_t b)
{
    uint32_t divisor = mx_significand(b);
    int32_t shift = 62 - mx_log2(mx_significand(a)); /* at least 39 bits remain */
    uint64_t dividend;
    if (a >= MX_INFINITY) {
        return MX_INFINITY;
    }
    if (mx_significand(a) == 0) {
        return 0;
    }
    dividend = (uint64_t)mx_significand(a) << shift;
    return mx_nearest_float32(dividend / divisor, mx_unit(a) - shift - mx_unit(b), dividend % divisor != 0);
}
{% endif %}
