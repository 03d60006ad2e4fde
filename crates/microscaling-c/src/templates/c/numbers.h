/* floor(log2(n)) of n > 0; -1 for 0. */
static inline int32_t mx_log2(uint64_t n)
{
    int32_t log2 = -1;
    while (n != 0) {
        n >>= 1;
        log2++;
    }
    return log2;
}

/* A finite float32 magnitude is significand * 2^unit. A subnormal one has the unit of the smallest normal numbers. */
static inline uint32_t mx_significand(uint32_t magnitude)
{
    return magnitude < MX_SMALLEST_NORMAL ? magnitude : (magnitude & 0x7fffffu) | MX_SMALLEST_NORMAL;
}

static inline int32_t mx_unit(uint32_t magnitude)
{
    return magnitude < MX_SMALLEST_NORMAL ? -149 : (int32_t)(magnitude >> 23) - 150;
}

/* The float32 of n * 2^unit, cut off toward zero where float32 is too coarse; Inf from 2^128 on. */
static inline uint32_t mx_float32(uint64_t n, int32_t unit)
{
    int32_t exponent = mx_log2(n) + unit;
    int32_t last = exponent < -126 ? -149 : exponent - 23; /* exponent of the last place */
    int32_t right = last - unit;
    if (n == 0 || right > 63) {
        return 0;
    }
    if (exponent > 127) {
        return MX_INFINITY;
    }
    n = right >= 0 ? n >> right : n << -right;
    /* The leading bit counts as one in the exponent field. */
    return (uint32_t)n + ((uint32_t)(last + 149) << 23);
}
{% if not p3109 %}
/* Whether a magnitude becomes the upper one of its neighbours. The code of the lower one is even or odd; the distance to it is `rest`,
 * and to the middle between both `half`. */
static inline uint32_t mx_is_up(uint32_t code, uint32_t rest, uint32_t half, uint32_t negative, mx_rounding rounding)
{
    uint32_t is_odd = code & 1u;
    switch (rounding) {
    case MX_NEAREST_AWAY:
        return rest >= half;
    case MX_NEAREST_EVEN:
        return rest > half || (rest == half && is_odd != 0);
    case MX_TIES_TO_ZERO:
        return rest > half;
    case MX_TIES_TO_ODD:
        return rest > half || (rest == half && is_odd == 0);
    case MX_TIES_UP:
        return rest > half || (rest == half && negative == 0);
    case MX_TIES_DOWN:
        return rest > half || (rest == half && negative != 0);
    case MX_AWAY_FROM_ZERO:
        return rest != 0;
    case MX_UPWARD:
        return rest != 0 && negative == 0;
    case MX_DOWNWARD:
        return rest != 0 && negative != 0;
    case MX_TO_ODD:
        return rest != 0 && is_odd == 0;
    default: /* MX_TOWARD_ZERO */
        return 0;
    }
}

/* significand / 2^drop, rounded to a whole number; `base` is added. `base` is even or odd as the code that the whole number belongs
 * to: a tie goes to the even code. With `drop` below 1 nothing is rounded. The significand has at most 24 bits. */
static inline uint32_t mx_round(uint32_t significand, int32_t drop, uint32_t base, uint32_t negative, mx_rounding rounding,
                                uint32_t draw)
{
    uint32_t down, rest;
    if (drop <= 0) {
        return base + (significand << -drop);
    }
    if (rounding == MX_STOCHASTIC) {
{% if fraction_rounding %}        /* The fraction is rounded to N bits first. */
        int32_t finer = drop - MX_RANDOM_BITS > 25 ? 25 : drop - MX_RANDOM_BITS;
        if (finer > 0) {
            down = significand >> finer;
            rest = significand - (down << finer);
            significand = down + mx_is_up(down, rest, 1u << (finer - 1), 0, MX_{{ fraction_rounding }});
            drop = MX_RANDOM_BITS;
        }
        {
{% endif %}        /* floor(x + u), u = draw / 2^32; the fraction of x counts with at most 31 bits, and so does u. */
        uint32_t bits = drop > 31 ? 31u : (uint32_t)drop;
        uint32_t excess = (uint32_t)drop - bits;
        uint32_t kept = excess > 31 ? 0 : significand >> excess;
        return base + ((kept + ((draw{% if random_bits != 31 %} & 0x{{ random_mask }}u{% endif %}) >> 1 >> (31 - bits))) >> bits);
{% if fraction_rounding %}        }
{% endif %}    }
    if (drop > 25) {
        drop = 25; /* less than a half in any case */
    }
    down = significand >> drop;
    rest = significand - (down << drop);
    return base + down + mx_is_up(base + down, rest, 1u << (drop - 1), negative, rounding);
}

/* The code, without a sign, of +-magnitude / 2^scale in a float format with these mantissa bits, whose smallest normal number is
 * 2^emin. The exponent field has no end here: the caller saturates. The magnitude is a float32 pattern; Inf counts as 2^128. */
static inline uint32_t mx_magnitude_code(uint32_t magnitude, uint32_t negative, int32_t scale, int32_t mantissa_bits, int32_t emin,
                                         mx_rounding rounding, uint32_t draw)
{
    uint32_t significand = mx_significand(magnitude);
    int32_t unit = mx_unit(magnitude) - scale;
    int32_t exponent = mx_log2(significand) + unit;
    if (significand == 0) {
        return 0;
    }
    if (exponent < emin) {
        exponent = emin; /* subnormal */
    }
    /* The leading bit counts as one in the exponent field; a subnormal number has the field 1, less this bit. */
    return mx_round(significand, exponent - mantissa_bits - unit, (uint32_t)(exponent - emin) << mantissa_bits, negative, rounding,
                    draw);
}

/* The inverse: the float32 of a code without a sign, times 2^scale, cut off toward zero where float32 is too coarse. */
static inline uint32_t mx_magnitude(uint32_t code, int32_t scale, int32_t mantissa_bits, int32_t emin)
{
    uint32_t field = code >> mantissa_bits;
    uint32_t implicit = field > 0 ? field - 1 : 0;
    return mx_float32(code - (implicit << mantissa_bits), emin - mantissa_bits + (int32_t)implicit + scale);
}
{% endif %}
