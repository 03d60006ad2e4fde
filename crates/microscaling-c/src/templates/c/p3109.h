/* {{ title }} */
#define MX_BITS {{ bits }}
#define MX_PRECISION {{ precision }}           /* bits of a significand, with the implicit one */
#define MX_BIAS {{ bias }}
#define MX_NAN_CODE 0x{{ nan_code }}u
#define MX_LARGEST_CODE 0x{{ max_code }}u    /* code of the largest number */
{% if extended %}#define MX_INFINITY_CODE 0x{{ infinity }}u   /* code of +Inf{% if signed %}; -Inf has the sign, too{% endif %} */
{% endif %}{% if signed %}#define MX_SIGN_CODE 0x{{ nan_code }}u       /* the sign of a code */
{% endif %}
/* Rounding modes. */
typedef enum {
    MX_TOWARD_ZERO = 0,
    MX_TOWARD_POSITIVE = 1,
    MX_TOWARD_NEGATIVE = 2,
    MX_NEAREST_TIES_TO_AWAY = 3,
    MX_NEAREST_TIES_TO_EVEN = 4, /* a tie goes to the even code */
    MX_TO_ODD = 5,               /* an inexact number becomes the neighbour with the odd code */
    MX_STOCHASTIC_A = 6,         /* up if N bits of the fraction, cut off, plus the random number are 1 or more */
    MX_STOCHASTIC_B = 7,         /* as A, with one bit more, and the random number half a unit higher */
    MX_STOCHASTIC_C = 8          /* as A, with the fraction rounded to N bits, half to even */
} mx_rounding;

/* Results for numbers that the format does not reach. */
typedef enum {
    MX_SAT_FINITE = 0,    /* the extreme finite number, for infinities, too */
    MX_SAT_PROPAGATE = 1, /* the extreme finite number for finite ones; infinities stay, where the format has them */
    MX_SAT_NONE = 2       /* an infinity or the extreme finite number, by the direction of rounding */
} mx_saturation;

/* The value of a code: +-significand * 2^exponent, or NaN, or +-Inf. */
typedef enum { MX_FINITE, MX_INFINITE, MX_NOT_A_NUMBER } mx_kind;

typedef struct {
    mx_kind kind;
    uint32_t negative;
    uint32_t significand;
    int32_t exponent;
} mx_value;

/* The value of a code, exactly. Bits above the code are ignored. There is no -0. */
static inline mx_value mx_decode_exact(uint32_t code)
{
    mx_value value = {MX_FINITE, 0, 0, 0};
    uint32_t field;
    code &= (1u << MX_BITS) - 1u;
    if (code == MX_NAN_CODE) {
        value.kind = MX_NOT_A_NUMBER;
        return value;
    }
{% if signed %}    if (code > MX_NAN_CODE) {
        value.negative = 1;
        code -= MX_SIGN_CODE;
    }
{% endif %}{% if extended %}    if (code > MX_LARGEST_CODE) {
        value.kind = MX_INFINITE;
        return value;
    }
{% endif %}    field = code >> (MX_PRECISION - 1);
    value.significand = code & ((1u << (MX_PRECISION - 1)) - 1u);
    value.exponent = 2 - MX_PRECISION - MX_BIAS;
    if (field != 0) {
        value.significand += 1u << (MX_PRECISION - 1);
        value.exponent += (int32_t)field - 1;
    }
    return value;
}
{% if fits_float32 %}
/* The float32 of a code, exactly: float32 has every number of this format. */
static inline uint32_t mx_decode(uint32_t code)
{
    mx_value value = mx_decode_exact(code);
    uint32_t sign = value.negative != 0 ? MX_SIGN : 0;
    if (value.kind == MX_NOT_A_NUMBER) {
        return MX_NAN;
    }
    return sign | (value.kind == MX_INFINITE ? MX_INFINITY : mx_float32(value.significand, value.exponent));
}
{% endif %}
/* floor(rest / 2^drop * 2^bits), of rest < 2^drop, drop > 0 and at most 32 bits. */
static inline uint64_t mx_fraction(uint64_t rest, int32_t drop, int32_t bits)
{
    int32_t right = drop - bits;
    return right > 63 ? 0 : right >= 0 ? rest >> right : rest << -right;
}

/* Whether rest / 2^drop * 2^bits has a part behind the point. */
static inline uint32_t mx_has_rest(uint64_t rest, int32_t drop, int32_t bits)
{
    int32_t right = drop - bits;
    return right > 63 ? rest != 0 : right > 0 && (rest & (((uint64_t)1 << right) - 1)) != 0;
}

/* Whether a magnitude between two neighbours becomes the larger one. */
static inline uint32_t mx_is_up(uint64_t rest, int32_t drop, uint32_t is_odd, uint32_t negative, mx_rounding rounding,
                                int32_t random_bits, uint32_t random)
{
    uint64_t half = mx_fraction(rest, drop, 1);
    uint64_t one = (uint64_t)1 << random_bits;
    uint64_t twice;
    switch (rounding) {
    case MX_TOWARD_POSITIVE:
        return negative == 0;
    case MX_TOWARD_NEGATIVE:
        return negative != 0;
    case MX_NEAREST_TIES_TO_AWAY:
        return half == 1;
    case MX_NEAREST_TIES_TO_EVEN:
        return half == 1 && (is_odd != 0 || mx_has_rest(rest, drop, 1) != 0);
    case MX_TO_ODD:
        return is_odd == 0;
    case MX_STOCHASTIC_A:
        return mx_fraction(rest, drop, random_bits) + random >= one;
    case MX_STOCHASTIC_B:
        return mx_fraction(rest, drop, random_bits + 1) + 2 * (uint64_t)random + 1 >= 2 * one;
    case MX_STOCHASTIC_C:
        twice = mx_fraction(rest, drop, random_bits + 1);
        if ((twice & 1u) != 0 && (mx_has_rest(rest, drop, random_bits + 1) != 0 || (twice & 2u) != 0)) {
            twice++;
        }
        return (twice >> 1) + random >= one;
    default: /* MX_TOWARD_ZERO */
        return 0;
    }
}

/* The code of an extreme finite number. */
static inline uint32_t mx_extreme(uint32_t negative)
{
    return {% if signed %}negative != 0 ? MX_LARGEST_CODE + MX_SIGN_CODE : MX_LARGEST_CODE{% else %}negative != 0 ? 0 : MX_LARGEST_CODE{% endif %};
}

/* The code of an infinity of a saturation mode that keeps infinities.{% if not extended %} This format has none.{% endif %} */
static inline uint32_t mx_infinite(uint32_t negative, mx_saturation saturation)
{
{% if extended and signed %}    (void)saturation;
    return negative != 0 ? MX_INFINITY_CODE + MX_SIGN_CODE : MX_INFINITY_CODE;
{% elif extended %}    if (negative != 0) {
        return saturation == MX_SAT_NONE ? MX_NAN_CODE : 0;
    }
    return MX_INFINITY_CODE;
{% elif signed %}    (void)saturation;
    return mx_extreme(negative);
{% else %}    return negative != 0 && saturation == MX_SAT_NONE ? MX_NAN_CODE : mx_extreme(negative);
{% endif %}}

/* The code for a finite number beyond the largest or the smallest one. */
static inline uint32_t mx_saturate(uint32_t negative, mx_rounding rounding, mx_saturation saturation)
{
    uint32_t stays = rounding == MX_TOWARD_ZERO || (rounding == MX_TOWARD_NEGATIVE && negative == 0)
        || (rounding == MX_TOWARD_POSITIVE && negative != 0){% if extended and not signed %} || (rounding == MX_TO_ODD && negative == 0){% endif %};
    if (saturation != MX_SAT_NONE || stays != 0) {
        return mx_extreme(negative);
    }
    return mx_infinite(negative, saturation);
}

/* The code of +-significand * 2^exponent. */
static inline uint32_t mx_project_exact(uint32_t negative, uint64_t significand, int32_t exponent, mx_rounding rounding,
                                        mx_saturation saturation, int32_t random_bits, uint32_t random)
{
    int32_t own = mx_log2(significand) + exponent;
    int32_t unit, drop;
    uint64_t whole, rest, code;
    if (significand == 0) {
        return 0;
    }
    unit = (own < 1 - MX_BIAS ? 1 - MX_BIAS : own) - MX_PRECISION + 1;
    drop = unit - exponent;
    if (drop <= 0) {
        whole = significand << -drop;
        rest = 0;
    } else {
        whole = drop > 63 ? 0 : significand >> drop;
        rest = drop > 63 ? significand : significand - (whole << drop);
    }
    /* The leading bit counts as one in the exponent field; a carry runs into this field. */
    code = ((uint64_t)(unit + MX_BIAS + MX_PRECISION - 2) << (MX_PRECISION - 1)) + whole;
    if (rest != 0) {
        code += mx_is_up(rest, drop, (uint32_t)(code & 1u), negative, rounding, random_bits, random);
    }
    if (code > {% if signed %}MX_LARGEST_CODE{% else %}(negative != 0 ? 0 : MX_LARGEST_CODE){% endif %}) {
        return mx_saturate(negative, rounding, saturation);
    }
{% if signed %}    return code != 0 && negative != 0 ? (uint32_t)code + MX_SIGN_CODE : (uint32_t)code;
{% else %}    return (uint32_t)code;
{% endif %}}

/* The code of a float32: rounded, saturated, encoded. NaN has the code of NaN, and +-0 the code 0. Subnormal numbers count as they are.
 * A stochastic mode takes a random number below 2^random_bits, with 1 to 31 bits; for the other modes both are 0. */
static inline uint32_t mx_project(uint32_t x, mx_rounding rounding, mx_saturation saturation, int32_t random_bits, uint32_t random)
{
    uint32_t magnitude = x & ~MX_SIGN;
    if (magnitude > MX_INFINITY) {
        return MX_NAN_CODE;
    }
    if (magnitude == MX_INFINITY) {
        return saturation == MX_SAT_FINITE ? mx_extreme(x >> 31) : mx_infinite(x >> 31, saturation);
    }
    return mx_project_exact(x >> 31, mx_significand(magnitude), mx_unit(magnitude), rounding, saturation, random_bits, random);
}

/* The same for a float64. */
static inline uint32_t mx_project_float64(uint64_t x, mx_rounding rounding, mx_saturation saturation, int32_t random_bits,
                                          uint32_t random)
{
    uint32_t negative = (uint32_t)(x >> 63);
    int32_t field = (int32_t)((x >> 52) & 0x7ffu);
    uint64_t trailing = x & (((uint64_t)1 << 52) - 1);
    if (field == 0x7ff) {
        if (trailing != 0) {
            return MX_NAN_CODE;
        }
        return saturation == MX_SAT_FINITE ? mx_extreme(negative) : mx_infinite(negative, saturation);
    }
    return mx_project_exact(negative, field == 0 ? trailing : trailing + ((uint64_t)1 << 52), field == 0 ? -1074 : field - 1075,
                            rounding, saturation, random_bits, random);
}
