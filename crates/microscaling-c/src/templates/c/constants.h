#define MX_SIGN 0x80000000u            /* of a float32 */
#define MX_INFINITY 0x7f800000u        /* +Inf as a float32; larger magnitudes are NaN */
#define MX_NAN 0x7fc00000u             /* the one NaN that results have */
#define MX_SMALLEST_NORMAL 0x00800000u /* 2^-126 as a float32 */
{% if not p3109 %}
/* Rounding modes. All but MX_STOCHASTIC ignore the random word `draw`. */
typedef enum {
    MX_NEAREST_AWAY = 0,   /* the nearer number; a tie goes away from zero */
    MX_NEAREST_EVEN = 1,   /* the nearer number; a tie goes to the even code */
    MX_TOWARD_ZERO = 2,    /* the magnitude is cut off */
    MX_STOCHASTIC = 3,     /* up with the probability of the cut fraction: floor(|x| / step + draw / 2^32) */
    MX_TIES_TO_ZERO = 4,   /* the nearer number; a tie goes toward zero */
    MX_TIES_TO_ODD = 5,    /* the nearer number; a tie goes to the odd code */
    MX_TIES_UP = 6,        /* the nearer number; a tie goes toward +Inf */
    MX_TIES_DOWN = 7,      /* the nearer number; a tie goes toward -Inf */
    MX_AWAY_FROM_ZERO = 8, /* the next number with a larger magnitude */
    MX_UPWARD = 9,         /* the next number toward +Inf */
    MX_DOWNWARD = 10,      /* the next number toward -Inf */
    MX_TO_ODD = 11         /* an inexact number becomes the neighbour with the odd code */
} mx_rounding;
{% if own_rounding %}#define MX_OWN_ROUNDING MX_{{ own_rounding }} /* the mode of this format's elements, in place of each mode of a caller */
{% elif random_bits != 31 or fraction_rounding %}#define MX_RANDOM_BITS {{ random_bits }} /* N: MX_STOCHASTIC takes the upper N bits of the random word{% if fraction_rounding %}, and rounds the fraction to N bits first (MX_{{ fraction_rounding }}){% endif %} */
{% endif %}
/* Elements: {{ element_text }} */
#define MX_ELEMENT_BITS {{ bits }}
#define MX_ELEMENT_MASK 0x{{ mask }}u       /* all bits of a code */
#define MX_ELEMENT_SIGN 0x{{ sign }}u       /* {% if unsigned %}above all bits of a code: there is no sign{% else %}its sign bit{% endif %} */
#define MX_MANTISSA_BITS {{ mantissa_bits }}
#define MX_EMIN ({{ emin }})               /* exponent of the smallest normal number{% if fixed %}; fixed point has no smaller exponent{% endif %} */
#define MX_EMAX {{ emax }}                  /* exponent of the largest number */
#define MX_LARGEST_CODE 0x{{ max_code }}u   /* code of the largest number */
{% if nan_code %}#define MX_NAN_CODE 0x{{ nan_code }}u       /* code of NaN */
{% endif %}{% if overflow_text != "saturate" %}/* Numbers beyond the largest one: `{{ overflow_text }}` */
{% endif %}{% endif %}{% if block %}
/* Blocks: {{ block_text }} */
{% if block_size > 0 %}#define MX_BLOCK_SIZE {{ block_size }}
{% endif %}{% if renormalizes %}#define MX_TOP_SCALE 0x{{ nan_scale }}u            /* code of the scale 2^128, of a block with a NaN or Inf; the code is the exponent plus 127 */
{% elif scale == "power" %}#define MX_LARGEST_SCALE {{ largest_scale }}   /* the scale is 2^-E to 2^E; its code is the exponent plus 127 */
#define MX_NAN_SCALE 0x{{ nan_scale }}u            /* code of the scale of a block that is NaN */
{% else %}#define MX_SCALE_BITS {{ scale_bits }}
#define MX_NAN_SCALE 0x{{ nan_scale }}u            /* code of the scale of a block that is NaN */
#define MX_LEAST_SCALE 0x{{ least_scale }}u     /* the smallest scale, as a float32 */
#define MX_MOST_SCALE 0x{{ most_scale }}u      /* the largest scale, as a float32 */
#define MX_LARGEST_UNIT 0x{{ largest_unit }}u    /* Q, the largest element, as a float32 */
{% if headroom %}#define MX_HEADROOM 0x{{ headroom_value }}u        /* h = {{ headroom_text }}, as a float32 */
{% endif %}{% if tensor_scale %}#define MX_TENSOR_MAX 0x{{ tensor_max }}u      /* the largest magnitude in units of the tensor scale */
{% endif %}{% endif %}{% if shifts %}#define MX_SUB_BLOCK_SIZE {{ sub_block_size }}
#define MX_SUB_BLOCKS {{ sub_blocks }}       /* of a full block */
#define MX_LARGEST_SHIFT {{ largest_shift }}
{% endif %}{% endif %}{% if accumulator %}
/* Sums: {{ accumulator_text }} */
{% endif %}
