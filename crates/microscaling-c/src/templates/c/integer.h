/* The sum of products as an integer of {{ integer_bits }} bits, in units of 2^{{ product_unit }}: {% if saturate %}after each product, a larger or smaller sum becomes the largest or
 * the smallest integer{% else %}the bits above are lost{% endif %}. */
static inline mx_number mx_integer_sum(const mx_operands *operands, uint32_t from, uint32_t count)
{
{% if saturate %}    const int64_t largest = ((int64_t)1 << {{ integer_bits - 1 }}) - 1;
{% else %}    uint64_t low;
{% endif %}    int64_t sum = 0;
    uint32_t i;
    for (i = from; i < from + count; i++) {
        mx_number a = mx_factor(operands, 0, i);
        mx_number b = mx_factor(operands, 1, i);
        int64_t x = mx_is_zero(&a) != 0 ? 0 : (int64_t)(a.low >> ({{ element_unit }} - a.unit));
        int64_t y = mx_is_zero(&b) != 0 ? 0 : (int64_t)(b.low >> ({{ element_unit }} - b.unit));
        sum += a.negative == b.negative ? x * y : -(x * y);
{% if saturate %}        sum = sum > largest ? largest : sum < -largest - 1 ? -largest - 1 : sum;
{% else %}        /* The low bits, as two's complement. */
        low = (uint64_t)sum & (((uint64_t)1 << {{ integer_bits }}) - 1);
        sum = (int64_t)low - (low >> {{ integer_bits - 1 }} != 0 ? (int64_t)1 << {{ integer_bits }} : 0);
{% endif %}    }
    return mx_finite(sum < 0, sum < 0 ? (uint64_t)-sum : (uint64_t)sum, {{ product_unit }}, -1000);
}
