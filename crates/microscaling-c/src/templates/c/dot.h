/* The dot product of two rows of n codes, added to the float32 c: {{ accumulator_text }}
{% if block %} * `a_scales` and `b_scales` have the code of the scale of each {% if block_size > 0 %}MX_BLOCK_SIZE elements; the last block may be shorter{% else %}row: one{% endif %}.{% if tensor_scale %} The tensor scales are
 * left out: the result is in units of their product.{% endif %}
{% endif %}{% if promote_every > 0 %} * After {{ promote_every }} elements, and at the end, the partial sum{% if scale_at == "promotion" %} times both scales{% endif %} is added to a float32 register, which starts from c; half to
 * even. The next partial sum starts from +0.
{% endif %} * NaN among the elements, the scales or c gives NaN, and so does Inf * 0, or +Inf and -Inf together; one kind of Inf gives that Inf.
 * Subnormal factors are not normalized: each has the exponent of its type's smallest normal number. */
static inline uint32_t mx_dot(const uint32_t a[], {% if block %}const uint32_t a_scales[], {% endif %}const uint32_t b[], {% if block %}const uint32_t b_scales[], {% endif %}uint32_t n,
                              uint32_t c)
{
    mx_operands operands;
{% if promote_every > 0 or order == "integer" %}    uint32_t start{% if order != "integer" %}, i{% endif %};
{% else %}    uint32_t i;
{% endif %}    operands.codes[0] = a;
    operands.codes[1] = b;
{% if block %}    operands.scales[0] = a_scales;
    operands.scales[1] = b_scales;
{% endif %}{% if promote_every > 0 or order == "integer" %}    for (start = 0; start < n; start += {{ promote_every if promote_every > 0 else "n" }}) {
{% if promote_every > 0 %}        uint32_t end = n - start < {{ promote_every }} ? n : start + {{ promote_every }};
{% else %}        uint32_t end = n;
{% endif %}        mx_number partial, scaled, running = mx_number_of(c, 0);
{% if order == "integer" %}        partial = mx_integer_sum(&operands, start, end - start);
{% else %}        uint32_t sum = 0;
        for (i = start; i < end; i += {{ terms }}) {
            sum = mx_addition(&operands, i, end - i < {{ terms }} ? end - i : {{ terms }}, sum);
        }
        partial = mx_number_of(sum, 0);
{% endif %}{% if scale_at == "promotion" %}        scaled = mx_scales(&operands, start);
        scaled = mx_times(&partial, &scaled);
{% else %}        scaled = partial;
{% endif %}        c = mx_add_two(&running, &scaled, 127, 23, 1);
    }
{% else %}    for (i = 0; i < n; i += {{ terms }}) {
        c = mx_addition(&operands, i, n - i < {{ terms }} ? n - i : {{ terms }}, c);
    }
{% endif %}    return (c & ~MX_SIGN) > MX_INFINITY ? MX_NAN : c;
}
