/* The largest magnitude of a block, as a pattern; of a NaN or Inf if there is one{% if keeps_special %}, which this format leaves out{% endif %}. */
static inline uint32_t mx_largest_magnitude(const uint32_t x[], uint32_t n)
{
    uint32_t largest = 0;
    uint32_t i;
    for (i = 0; i < n; i++) {
        uint32_t magnitude = x[i] & ~MX_SIGN;
        if (magnitude > largest{% if keeps_special %} && magnitude < MX_INFINITY{% endif %}) {
            largest = magnitude;
        }
    }
    return largest;
}
{% if not fixed_steps %}
/* The exponent of a block's scale, from all n elements; `largest` is the largest magnitude, finite. */
static inline int32_t mx_scale_exponent(const uint32_t x[], uint32_t n, uint32_t largest)
{
{% if rms %}    /* floor(log2(c * h * r)), r the root mean square, c = 2.92247856 / 6, h = {{ headroom_text }}. Magnitudes have 16 bits, in units of
     * 2^(exponent of the largest - 15), cut off. */
    int32_t unit = mx_log2(mx_significand(largest)) + mx_unit(largest) - 15;
    uint64_t sum = 0;
    uint32_t mean, i;
    int32_t halved = 0;
    if (largest == 0) {
        return -126 - {{ emax }};
    }
    for (i = 0; i < n; i++) {
        uint32_t magnitude = x[i] & ~MX_SIGN;
        int32_t right = unit - mx_unit(magnitude);
        uint64_t steps = mx_significand(magnitude);
        steps = right > 31 ? 0 : right >= 0 ? steps >> right : steps << -right;
        sum += steps * steps;
    }
    mean = (uint32_t)(sum / n);
    if (mean == 0) {
        mean = 1;
    }
    while (mean < 0x40000000u) {
        mean <<= 2;
        halved++;
    }
    /* The thresholds are 4^14 and 4^15 over (c * h)^2, rounded up. */
    return unit + 13 - halved + (mean >= {{ rms_steps[0] }}u) + (mean >= {{ rms_steps[1] }}u);
{% else %}    /* {{ scale_rule }}. {% if addend > 0 %}Each binade has one threshold, from where on the exponent is one more: an addition to
     * the significand carries there.{% endif %} A block of zeros counts as 2^-126. */
{% if divides %}    uint32_t magnitude = mx_product(largest, 0x{{ inverse_max }}u); /* times 1 / {{ max_text }}, in float32 */
{% else %}    uint32_t magnitude = largest;
{% endif %}    uint32_t significand = mx_significand(magnitude);
    int32_t log2 = {% if keeps_subnormals %}23; /* float32 subnormals count as they are */{% else %}mx_log2(significand);{% endif %}
    (void)x;
    (void)n;
    if (largest == 0) {
        return -126 - {{ emax }};
    }
{% if divides %}    if (magnitude == 0) {
        return -MX_LARGEST_SCALE;
    }
{% endif %}    significand <<= 23 - log2; /* 1 to 2, in units of 2^-23 */
    return mx_unit(magnitude) + log2 + (int32_t)((significand + {{ addend }}u) >> 23) - 1{% if not divides %} - {{ emax }}{% endif %};
{% endif %}}
{% endif %}
