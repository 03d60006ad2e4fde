{% if flush %}/* A subnormal number of {{ output }} becomes a zero of its sign. */
static inline uint32_t mx_flushed(uint32_t x)
{
    uint32_t magnitude = x & ~MX_SIGN;
    uint32_t is_subnormal = magnitude != 0 && mx_log2(mx_significand(magnitude)) + mx_unit(magnitude) < {{ output_emin }};
    return is_subnormal != 0 ? x & MX_SIGN : x;
}

{% endif %}/* The sum of two numbers in {{ output }}{% if flush %}, flushed{% endif %}. */
static inline uint32_t mx_pair(const mx_number *a, const mx_number *b)
{
    uint32_t sum = mx_add_two(a, b, {{ output_emax }}, {{ output_mantissa_bits }}, {{ output_nearest }});
    return {% if flush %}mx_flushed(sum){% else %}sum{% endif %};
}

/* One addition of {{ terms }} products to the running sum c: `pairs`, a tree of adders, each of which rounds to {{ output }}; the last one adds c.
 * Missing products are +0.{% if flush %} Products are rounded, too; subnormal factors, c, products and sums are 0.{% endif %} IEEE 754's rules for zeros, NaN and Inf. */
static inline uint32_t mx_addition(const mx_operands *operands, uint32_t from, uint32_t count, uint32_t c)
{
    mx_number value[{{ terms }}];
    mx_number running;
    uint32_t i, length;
    for (i = 0; i < {{ terms }}; i++) {
        value[i] = i < count ? mx_product_at(operands, from + i) : mx_number_of(0, 0);
{% if flush %}        running = mx_number_of(MX_SIGN, 0);
        value[i] = mx_number_of(mx_pair(&value[i], &running), 0);
{% endif %}    }
    for (length = {{ terms }}; length > 1; length /= 2) {
        for (i = 0; i < length / 2; i++) {
            value[i] = mx_number_of(mx_pair(&value[2 * i], &value[2 * i + 1]), 0);
        }
    }
{% if flush %}    if (mx_flushed(c) == (c & MX_SIGN) && c != MX_SIGN) {
        c = 0;
    }
{% endif %}    running = mx_number_of(c, 0);
    return mx_pair(&running, &value[0]);
}
