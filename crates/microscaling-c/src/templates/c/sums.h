/* A number of a sum: +-(high * 2^64 + low) * 2^unit, or +-Inf, or NaN. `exponent` is the exponent by which sums align the number. For a
 * product this is the sum of the exponents of its factors, each at least the exponent of its type's smallest normal number. */
typedef enum { MX_FINITE, MX_INFINITE, MX_NOT_A_NUMBER } mx_kind;

typedef struct {
    mx_kind kind;
    uint32_t negative;
    uint64_t high, low;
    int32_t unit;
    int32_t exponent;
} mx_number;

static inline mx_number mx_finite(uint32_t negative, uint64_t low, int32_t unit, int32_t emin)
{
    mx_number number = {MX_FINITE, 0, 0, 0, 0, 0};
    int32_t exponent = mx_log2(low) + unit;
    number.negative = negative;
    number.low = low;
    number.unit = unit;
    number.exponent = exponent < emin ? emin : exponent;
    return number;
}

/* A float32, whose exponent counts as at least `emin`. */
static inline mx_number mx_number_of(uint32_t x, int32_t emin)
{
    uint32_t magnitude = x & ~MX_SIGN;
    mx_number number = mx_finite(x >> 31, mx_significand(magnitude), mx_unit(magnitude), emin);
    if (magnitude >= MX_INFINITY) {
        number.kind = magnitude == MX_INFINITY ? MX_INFINITE : MX_NOT_A_NUMBER;
    }
    return number;
}

static inline uint32_t mx_is_zero(const mx_number *x)
{
    return x->kind == MX_FINITE && x->high == 0 && x->low == 0;
}

/* The exact product of two numbers below 2^64. Inf times zero is NaN. */
static inline mx_number mx_times(const mx_number *a, const mx_number *b)
{
    mx_number product = {MX_FINITE, 0, 0, 0, 0, 0};
    uint64_t mask = 0xffffffffu;
    uint64_t low = (a->low & mask) * (b->low & mask);
    uint64_t cross = (a->low >> 32) * (b->low & mask);
    uint64_t other = (a->low & mask) * (b->low >> 32);
    uint64_t middle = (low >> 32) + (cross & mask) + (other & mask);
    product.negative = a->negative ^ b->negative;
    product.low = (low & mask) | (middle << 32);
    product.high = (a->low >> 32) * (b->low >> 32) + (cross >> 32) + (other >> 32) + (middle >> 32);
    product.unit = a->unit + b->unit;
    product.exponent = a->exponent + b->exponent;
    if (a->kind == MX_NOT_A_NUMBER || b->kind == MX_NOT_A_NUMBER) {
        product.kind = MX_NOT_A_NUMBER;
    } else if (a->kind == MX_INFINITE || b->kind == MX_INFINITE) {
        product.kind = mx_is_zero(a) || mx_is_zero(b) ? MX_NOT_A_NUMBER : MX_INFINITE;
    }
    return product;
}

/* An exact sum: an integer in two's complement, low digits first, in units of 2^-MX_LOWEST. Every product of four float32 numbers is
 * a whole number of these units. */
#define MX_DIGITS 40
#define MX_LOWEST 640
typedef struct {
    uint32_t digit[MX_DIGITS];
} mx_sum;

static inline mx_sum mx_zero(void)
{
    mx_sum sum;
    uint32_t i;
    for (i = 0; i < MX_DIGITS; i++) {
        sum.digit[i] = 0;
    }
    return sum;
}

/* Adds a finite number. */
static inline void mx_add(mx_sum *sum, const mx_number *x)
{
    uint32_t at = (uint32_t)(x->unit + MX_LOWEST);
    uint32_t first = at / 32, shift = at % 32, i;
    uint64_t carry = x->negative;
    uint64_t part[4];
    part[0] = x->low & 0xffffffffu;
    part[1] = x->low >> 32;
    part[2] = x->high & 0xffffffffu;
    part[3] = x->high >> 32;
    for (i = first; i < MX_DIGITS; i++) {
        uint32_t k = i - first;
        uint64_t digit = k < 4 ? part[k] << shift : 0;
        if (k >= 1 && k <= 4) {
            digit |= (part[k - 1] << shift) >> 32;
        }
        digit &= 0xffffffffu;
        /* A negative number is added as its complement, plus one. */
        carry += sum->digit[i] + (x->negative != 0 ? digit ^ 0xffffffffu : digit);
        sum->digit[i] = (uint32_t)(carry & 0xffffffffu);
        carry >>= 32;
    }
}

static inline void mx_add_sum(mx_sum *sum, const mx_sum *other)
{
    uint64_t carry = 0;
    uint32_t i;
    for (i = 0; i < MX_DIGITS; i++) {
        carry += (uint64_t)sum->digit[i] + other->digit[i];
        sum->digit[i] = (uint32_t)(carry & 0xffffffffu);
        carry >>= 32;
    }
}

static inline uint32_t mx_is_negative(const mx_sum *sum)
{
    return sum->digit[MX_DIGITS - 1] >> 31;
}

/* The magnitude. */
static inline mx_sum mx_absolute(const mx_sum *sum)
{
    mx_sum absolute = *sum;
    uint64_t carry = 1;
    uint32_t i;
    if (mx_is_negative(sum) != 0) {
        for (i = 0; i < MX_DIGITS; i++) {
            carry += sum->digit[i] ^ 0xffffffffu;
            absolute.digit[i] = (uint32_t)(carry & 0xffffffffu);
            carry >>= 32;
        }
    }
    return absolute;
}

/* The lowest digits of a sum that are below 2^unit: their number in bits. */
static inline uint32_t mx_bits_below(int32_t unit)
{
    int32_t bits = unit + MX_LOWEST;
    return bits < 0 ? 0 : bits > 32 * MX_DIGITS ? 32u * MX_DIGITS : (uint32_t)bits;
}

/* Whether the sum is a multiple of 2^unit. */
static inline uint32_t mx_is_multiple(const mx_sum *sum, int32_t unit)
{
    uint32_t bits = mx_bits_below(unit), i;
    for (i = 0; i < bits / 32; i++) {
        if (sum->digit[i] != 0) {
            return 0;
        }
    }
    return bits % 32 == 0 || (sum->digit[bits / 32] & ((1u << (bits % 32)) - 1u)) == 0;
}

/* Rounded down to a multiple of 2^unit. */
static inline void mx_floor(mx_sum *sum, int32_t unit)
{
    uint32_t bits = mx_bits_below(unit), i;
    for (i = 0; i < bits / 32; i++) {
        sum->digit[i] = 0;
    }
    if (bits % 32 != 0) {
        sum->digit[bits / 32] &= ~((1u << (bits % 32)) - 1u);
    }
}

/* Cut off toward zero to a multiple of 2^unit. */
static inline void mx_cut(mx_sum *sum, int32_t unit)
{
    mx_number one = mx_finite(0, 1, unit, unit);
    uint32_t up = mx_is_negative(sum) != 0 && mx_is_multiple(sum, unit) == 0;
    mx_floor(sum, unit);
    if (up != 0) {
        mx_add(sum, &one);
    }
}

/* floor(log2(magnitude)) of a magnitude that is not 0; less than all other numbers for 0. */
static inline int32_t mx_log2_of_sum(const mx_sum *magnitude)
{
    uint32_t i = MX_DIGITS;
    while (i > 0 && magnitude->digit[i - 1] == 0) {
        i--;
    }
    return i == 0 ? -MX_LOWEST - 1 : (int32_t)(32 * (i - 1)) + mx_log2(magnitude->digit[i - 1]) - MX_LOWEST;
}

/* The sum in a float format of this emax and these mantissa bits, as a float32: rounded once, half to even, or cut off toward zero.
 * Beyond the largest exponent the sum is +-Inf. Zero is +0; a sum that is rounded to zero keeps its sign. */
static inline uint32_t mx_rounded(const mx_sum *sum, int32_t emax, int32_t mantissa_bits, uint32_t to_nearest)
{
    mx_sum magnitude = mx_absolute(sum);
    int32_t exponent = mx_log2_of_sum(&magnitude);
    int32_t unit = (exponent < 1 - emax ? 1 - emax : exponent) - mantissa_bits;
    uint32_t at = (uint32_t)(unit + MX_LOWEST);
    uint32_t sign = mx_is_negative(sum) != 0 ? MX_SIGN : 0;
    uint32_t below = (at - 1) / 32;
    /* Twice as fine: the last bit is the half. */
    uint64_t window = magnitude.digit[below];
    uint32_t steps, half;
    if (below + 1 < MX_DIGITS) {
        window |= (uint64_t)magnitude.digit[below + 1] << 32;
    }
    window >>= (at - 1) % 32;
    half = (uint32_t)(window & 1u);
    steps = (uint32_t)((window >> 1) & 0x1ffffffu);
    if (to_nearest != 0 && half != 0 && (mx_is_multiple(&magnitude, unit - 1) == 0 || (steps & 1u) != 0)) {
        steps++;
    }
    if (steps != 0 && mx_log2(steps) + unit > emax) {
        return sign | MX_INFINITY;
    }
    return sign | mx_float32(steps, unit);
}

/* The result of a sum with these terms if one is not finite: NaN of a NaN, or of +Inf and -Inf together; else the Inf. */
typedef struct {
    uint32_t nan, positive, negative;
} mx_special;

static inline void mx_look(mx_special *special, const mx_number *x)
{
    special->nan |= x->kind == MX_NOT_A_NUMBER;
    special->positive |= x->kind == MX_INFINITE && x->negative == 0;
    special->negative |= x->kind == MX_INFINITE && x->negative != 0;
}

static inline uint32_t mx_is_special(const mx_special *special)
{
    return special->nan | special->positive | special->negative;
}

static inline uint32_t mx_special_sum(const mx_special *special)
{
    if (special->nan != 0 || (special->positive & special->negative) != 0) {
        return MX_NAN;
    }
    return special->negative != 0 ? MX_SIGN | MX_INFINITY : MX_INFINITY;
}

/* The sum of two numbers, rounded once. -0 only of two zeros that are both -0. */
static inline uint32_t mx_add_two(const mx_number *a, const mx_number *b, int32_t emax, int32_t mantissa_bits, uint32_t to_nearest)
{
    mx_special special = {0, 0, 0};
    mx_sum sum = mx_zero();
    mx_look(&special, a);
    mx_look(&special, b);
    if (mx_is_special(&special) != 0) {
        return mx_special_sum(&special);
    }
    if (mx_is_zero(a) != 0 && mx_is_zero(b) != 0) {
        return (a->negative & b->negative) != 0 ? MX_SIGN : 0;
    }
    mx_add(&sum, a);
    mx_add(&sum, b);
    return mx_rounded(&sum, emax, mantissa_bits, to_nearest);
}

/* Two rows of codes that are multiplied. */
typedef struct {
    const uint32_t *codes[2];
{% if block %}    const uint32_t *scales[2];
{% endif %}} mx_operands;

/* An element of operand `side`, without its scale. */
static inline mx_number mx_factor(const mx_operands *operands, uint32_t side, uint32_t i)
{
    return mx_number_of(mx_decode_element(operands->codes[side][i]), MX_EMIN);
}

/* The product of the scales of an element. */
static inline mx_number mx_scales(const mx_operands *operands, uint32_t i)
{
{% if block %}    uint32_t block = {% if block_size > 0 %}i / MX_BLOCK_SIZE{% else %}0 * i{% endif %};
{% if renormalizes %}    /* Also 2^128, which no float32 is. */
    mx_number a = mx_finite(0, 1, (int32_t)operands->scales[0][block] - 127, -127);
    mx_number b = mx_finite(0, 1, (int32_t)operands->scales[1][block] - 127, -127);
{% else %}    mx_number a = mx_number_of(mx_decode_scale(operands->scales[0][block]), {{ scale_type_emin }});
    mx_number b = mx_number_of(mx_decode_scale(operands->scales[1][block]), {{ scale_type_emin }});
{% endif %}    return mx_times(&a, &b);
{% else %}    (void)operands;
    (void)i;
    return mx_number_of(0x3f800000u, 0);
{% endif %}}
{% if order != "integer" %}
/* Product number i{% if scale_at == "product" %}, with its scales{% else %}, without its scales, which come in at the promotion{% endif %}. */
static inline mx_number mx_product_at(const mx_operands *operands, uint32_t i)
{
    mx_number a = mx_factor(operands, 0, i);
    mx_number b = mx_factor(operands, 1, i);
{% if flush %}    /* Subnormal factors are zero. */
    if (a.kind == MX_FINITE && a.low != 0 && mx_log2(a.low) + a.unit < MX_EMIN) {
        a.low = 0;
        a.negative = 0;
    }
    if (b.kind == MX_FINITE && b.low != 0 && mx_log2(b.low) + b.unit < MX_EMIN) {
        b.low = 0;
        b.negative = 0;
    }
{% endif %}    mx_number product = mx_times(&a, &b);
{% if scale_at == "product" and block %}    mx_number scales = mx_scales(operands, i);
    product = mx_times(&product, &scales);
{% endif %}    return product;
}
{% endif %}
