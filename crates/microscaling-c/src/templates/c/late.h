{% set ways = 2 if interleave else 1 %}/* One addition of {{ terms }} products, or fewer at the end, to the running sum c: `late`.
 * Products are cut off toward zero at 2^(largest exponent - {{ fraction_bits }}) and summed without c{% if interleave %}, even and odd ones apart; the two sums are rounded
 * down to the larger one's last bit, and added{% endif %}. The largest exponent then includes c's. That sum is rounded down
 * to 32 bits below it, c to {{ fraction_bits }} bits below it{% if interleave %}; a c more than {{ fraction_bits + 1 }} below it is 0{% endif %}. Their sum is rounded down to 31 fraction bits, then to {{ output }}.
 * A product of 2^128 or more is Inf. */
static inline uint32_t mx_addition(const mx_operands *operands, uint32_t from, uint32_t count, uint32_t c)
{
    mx_number running = mx_number_of(c, {{ output_emin }});
    mx_special special = {0, 0, 0};
    mx_sum of_way[{{ ways }}];
    mx_sum sum = mx_zero(), products = mx_zero();
    int32_t c_exponent = mx_is_zero(&running) != 0 ? {{ output_emin }} : running.exponent;
    int32_t largest = -100000, top, unit;
    uint32_t i, way;
    mx_look(&special, &running);
    for (way = 0; way < {{ ways }}; way++) {
        int32_t own = -100000;
        of_way[way] = mx_zero();
        for (i = from + way; i < from + count; i += {{ ways }}) {
            mx_number product = mx_product_at(operands, i);
            if (product.kind == MX_FINITE && mx_is_zero(&product) == 0) {
                if ((product.high != 0 ? 64 + mx_log2(product.high) : mx_log2(product.low)) + product.unit >= 128) {
                    product.kind = MX_INFINITE;
                }
                own = product.exponent > own ? product.exponent : own;
            }
            mx_look(&special, &product);
        }
        for (i = from + way; i < from + count && mx_is_special(&special) == 0; i += {{ ways }}) {
            mx_number product = mx_product_at(operands, i);
            mx_sum term = mx_zero();
            mx_add(&term, &product);
            mx_cut(&term, (own > -100000 ? own : 0) - {{ fraction_bits }});
            mx_add_sum(&of_way[way], &term);
        }
        largest = own > largest ? own : largest;
    }
    if (mx_is_special(&special) != 0) {
        return mx_special_sum(&special);
    }
    for (way = 0; way < {{ ways }}; way++) {
        mx_floor(&of_way[way], (largest > -100000 ? largest : 0) - {{ fraction_bits }});
        mx_add_sum(&products, &of_way[way]);
    }
    top = largest > c_exponent ? largest : c_exponent;
    mx_floor(&products, top - 32);
    mx_add_sum(&sum, &products);
{% if interleave %}    if (c_exponent >= top - {{ fraction_bits + 1 }})
{% endif %}    {
        mx_sum term = mx_zero();
        mx_add(&term, &running);
        mx_floor(&term, top - {{ fraction_bits }});
        mx_add_sum(&sum, &term);
    }
    products = mx_absolute(&sum);
    unit = mx_log2_of_sum(&products);
    if (unit < -MX_LOWEST) {
        return 0;
    }
    mx_floor(&sum, (unit < {{ output_emin }} ? {{ output_emin }} : unit) - 31);
    return mx_rounded(&sum, {{ output_emax }}, {{ output_mantissa_bits }}, {{ output_nearest }});
}
