{% set t = ", input logic [31:0] tensor_scale" if tensor_scale else "" %}  // The larger one of two magnitudes{% if keeps_special or special_elements %}, without NaN and Inf{% endif %}.
  function automatic logic [31:0] larger(input logic [31:0] largest, input logic [31:0] x);
    logic [31:0] magnitude;
    begin
      magnitude = {1'b0, x[30:0]};
      larger = (magnitude > largest{% if keeps_special or special_elements %} && magnitude < INFINITY{% endif %}) ? magnitude : largest;
    end
  endfunction

  // The largest magnitude of a block, as a pattern; of a NaN or Inf if there is one{% if keeps_special %}, which this format leaves out{% elif special_elements %}; but here NaN and Inf
  // do not count, unless all are NaN{% endif %}. Element i is x[32 * i +: 32].
  function automatic logic [31:0] largest_magnitude(input logic [32*BLOCK_SIZE-1:0] x);
    int i;
{% if special_elements %}    logic is_nan;
{% endif %}    begin
      largest_magnitude = 32'd0;
{% if special_elements %}      is_nan = 1'b1;
{% endif %}      for (i = 0; i < BLOCK_SIZE; i = i + 1) begin
        largest_magnitude = larger(largest_magnitude, x[32*i +: 32]);
{% if special_elements %}        is_nan = is_nan && x[32*i +: 31] > INFINITY[30:0];
{% endif %}      end
{% if special_elements %}      if (is_nan) largest_magnitude = NAN;
{% endif %}    end
  endfunction

{% if scale == "float" %}  // The float32 of a scale's code.
  function automatic logic [31:0] decode_scale(input logic [SCALE_BITS-1:0] code);
{% if float32_scale %}    decode_scale = (code[30:0] > INFINITY[30:0]) ? NAN : code;
{% else %}    logic [31:0] wide;
    begin
      wide = {{ "{" }}{{ 32 - scale_magnitude_bits }}'d0, code{% if scale_signed %}[SCALE_BITS-2:0]{% endif %}};
      if (code == NAN_SCALE) decode_scale = NAN;
{% if scale_specials in ["ieee", "nan_inf", "extended"] %}      else if (wide >= 32'h{{ scale_infinity }}) decode_scale = (wide == 32'h{{ scale_infinity }}) ? INFINITY : NAN;
{% endif %}      else decode_scale = magnitude_of(wide, 0, {{ scale_mantissa_bits }}, {{ scale_emin }});
{% if scale_signed %}      decode_scale = decode_scale | {code[SCALE_BITS-1] && code != NAN_SCALE, 31'd0};
{% endif %}    end
{% endif %}  endfunction

  // The code of a scale: limited to {% if not scale_of_zero %}the smallest and {% endif %}the largest one, and rounded half to even. Inf counts as the largest one.
  function automatic logic [SCALE_BITS-1:0] encode_scale(input logic [31:0] scale);
    logic [31:0] limited{% if not float32_scale %}, code{% endif %};
    begin
      limited = {% if not scale_of_zero %}(scale < 32'h{{ least_scale }}) ? 32'h{{ least_scale }} : {% endif %}(scale > 32'h{{ most_scale }}) ? 32'h{{ most_scale }} : scale;
{% if float32_scale %}      encode_scale = limited;
{% else %}      code = magnitude_code(limited, 1'b0, 0, {{ scale_mantissa_bits }}, {{ scale_emin }}, NEAREST_EVEN, 32'd0);
      encode_scale = code[SCALE_BITS-1:0];
{% endif %}    end
  endfunction
{% if tensor_scale %}
  // The scale of a tensor with this largest magnitude: largest / {{ tensor_max_text }}{% if headroom %} * {{ headroom_text }}{% endif %}, in float32. NaN of a NaN or Inf.
  function automatic logic [31:0] tensor_scale_of(input logic [31:0] largest);
    logic [31:0] magnitude;
    begin
      magnitude = {1'b0, largest[30:0]};
      tensor_scale_of = (magnitude >= INFINITY) ? NAN : {% if headroom %}product(quotient(magnitude, 32'h{{ tensor_max }}), 32'h{{ headroom_value }}){% else %}quotient(magnitude, 32'h{{ tensor_max }}){% endif %};
    end
  endfunction
{% endif %}
  // The code of the scale of a block: (largest / Q){% if tensor_scale %} / tensor_scale{% endif %}{% if headroom %} * {{ headroom_text }}{% endif %}, each operation in float32, then limited and rounded half to
  // even. {% if special_elements %}A block of NaN alone{% else %}A NaN or Inf{% endif %}{% if tensor_scale %}, also of the tensor scale, or tensor_scale * scale beyond float32,{% endif %} gives NAN_SCALE.
  function automatic logic [SCALE_BITS-1:0] block_scale(input logic [32*BLOCK_SIZE-1:0] x{{ t }});
    logic [31:0] largest, scale;
    logic [SCALE_BITS-1:0] code;
    begin
      largest = largest_magnitude(x);
{% if flush_inputs %}      if (largest < SMALLEST_NORMAL) largest = 32'd0;
{% endif %}      scale = quotient(largest, 32'h{{ largest_unit }});
{% if tensor_scale %}      scale = quotient(scale, tensor_scale);
{% endif %}{% if headroom %}      scale = product(scale, 32'h{{ headroom_value }});
{% endif %}{% if tensor_scale %}      if (tensor_scale == 32'd0) scale = 32'd0;
{% endif %}      code = encode_scale(scale);
      block_scale = (largest >= INFINITY{% if tensor_scale %} || tensor_scale >= INFINITY
          || product(decode_scale(code), tensor_scale) >= INFINITY{% endif %}) ? NAN_SCALE : code;
    end
  endfunction

  // By what elements are divided: {% if tensor_scale %}tensor_scale * {% endif %}scale. 0 of a block that is NaN.
  function automatic logic [31:0] divisor_of(input logic [SCALE_BITS-1:0] scale{{ t }});
    divisor_of = (scale == NAN_SCALE) ? 32'd0 : {% if tensor_scale %}product(decode_scale(scale), tensor_scale){% else %}decode_scale(scale){% endif %};
  endfunction

  // By what elements are multiplied{% if divides %}: Inf, as they are divided. Otherwise{% endif %}: {% if tensor_scale %}(1 / tensor_scale){% else %}1{% endif %} / scale. Where this is Inf, they are divided.
  function automatic logic [31:0] factor_of(input logic [SCALE_BITS-1:0] scale{{ t }});
    factor_of = {% if divides %}INFINITY{% else %}quotient({% if tensor_scale %}(tensor_scale == 32'd0) ? 32'd0 : quotient(32'h3f800000, tensor_scale){% else %}32'h3f800000{% endif %}, decode_scale(scale)){% endif %};
  endfunction

  // The code of an element in a block with this divisor and factor. Larger elements: see element_code; zero keeps its sign where codes
  // have a -0.{% if special_elements %} NaN and Inf are elements, but Inf is 0 beside the scale 0. In a block that is NaN the code is NaN.{% else %} In a block that is NaN the code is 0.{% endif %}
  function automatic logic [ELEMENT_BITS-1:0] encode_scaled(input logic [31:0] x, input logic [SCALE_BITS-1:0] scale,
                                                            input logic [31:0] divisor, input logic [31:0] factor,
                                                            input logic [3:0] rounding, input logic [31:0] draw);
    logic [31:0] magnitude, unit;
    begin
      magnitude = {1'b0, x[30:0]};
      unit = (factor >= INFINITY) ? quotient(magnitude, divisor) : product(magnitude, factor);
      if (divisor == 32'd0{% if flush_inputs %} || magnitude < SMALLEST_NORMAL{% endif %}) unit = 32'd0;
      if (scale == NAN_SCALE) encode_scaled = {% if special_elements %}NAN_CODE{% else %}{{ bits }}'d0{% endif %};
{% if special_elements %}      else if (magnitude > INFINITY || (magnitude == INFINITY && divisor != 32'd0)) encode_scaled = special_code(x);
{% endif %}      else encode_scaled = element_code(unit, x[31], 0, LARGEST_CODE, rounding, draw);
    end
  endfunction

  // The float32 of an element: element * {% if tensor_scale %}(tensor_scale * scale){% else %}scale{% endif %}, each product in float32. NaN of the scale{% if tensor_scale %}, or a tensor scale that is
  // negative or not finite,{% endif %} gives NaN. A product beyond float32 is +-Inf; zero times anything is zero.
  function automatic logic [31:0] decode_scaled(input logic [ELEMENT_BITS-1:0] code, input logic [SCALE_BITS-1:0] scale{{ t }});
    logic [31:0] element, magnitude, own, factor;
{% if scale_signed %}    logic [31:0] whole;
{% endif %}    logic negative;
    begin
      element = decode_element(code);
      magnitude = {1'b0, element[30:0]};
{% if scale_signed %}      whole = decode_scale(scale);
      own = {1'b0, whole[30:0]};
      negative = element[31] ^ whole[31];
{% elif float32_scale %}      own = {1'b0, scale[30:0]};
      negative = element[31] ^ scale[31];
{% else %}      own = decode_scale(scale);
      negative = element[31];
{% endif %}      factor = {% if tensor_scale %}product(own, tensor_scale){% else %}own{% endif %};
      if (own >= INFINITY{% if tensor_scale %} || tensor_scale >= INFINITY{% endif %} || magnitude > INFINITY || (magnitude == INFINITY && factor == 32'd0)) begin
        decode_scaled = NAN;
      end
      else if (magnitude == 32'd0) decode_scaled = {negative, 31'd0};
      else decode_scaled = product(magnitude, factor) | {negative, 31'd0};
    end
  endfunction
{% else %}{% if not fixed_steps %}  // The exponent of a block's scale; `largest` is the largest magnitude, finite.
{% if rms %}  // floor(log2(c * h * r)), r the root mean square, c = 2.92247856 / 6, h = {{ headroom_text }}. Magnitudes have 16 bits, in units of
  // 2^(exponent of the largest - 15), cut off.
  function automatic int scale_exponent(input logic [32*BLOCK_SIZE-1:0] x, input logic [31:0] largest);
    int i, unit, right, halved;
    logic [31:0] element, steps, mean;
    logic [63:0] sum;
    begin
      unit = log2({32'd0, significand_of(largest)}) + unit_of(largest) - 15;
      sum = 64'd0;
      for (i = 0; i < BLOCK_SIZE; i = i + 1) begin
        element = {1'b0, x[32*i +: 31]};
        right = unit - unit_of(element);
        steps = (right > 31) ? 32'd0 : (right >= 0) ? significand_of(element) >> right : significand_of(element) << -right;
        sum = sum + {32'd0, steps} * {32'd0, steps};
      end
      sum = sum / {{ elements }};
      mean = (sum[31:0] == 32'd0) ? 32'd1 : sum[31:0];
      halved = (31 - log2({32'd0, mean})) >> 1;
      mean = mean << (2 * halved);
      // The thresholds are 4^14 and 4^15 over (c * h)^2, rounded up.
      scale_exponent = (largest == 32'd0) ? -126 - {{ emax }}
          : unit + 13 - halved + ((mean >= 32'd{{ rms_steps[0] }}) ? 1 : 0) + ((mean >= 32'd{{ rms_steps[1] }}) ? 1 : 0);
    end
  endfunction
{% else %}  // {{ scale_rule }}. {% if addend > 0 %}Each binade has one threshold, from where on the exponent is one more: an addition to the
  // significand carries there.{% endif %} A block of zeros counts as 2^-126.
  function automatic int scale_exponent(input logic [31:0] largest);
    int own;
    logic [31:0] magnitude, normal;
    begin
{% if divides %}      magnitude = product(largest, 32'h{{ inverse_max }}); // times 1 / {{ max_text }}, in float32
{% else %}      magnitude = largest;
{% endif %}{% if keeps_subnormals %}      own = 23; // float32 subnormals count as they are
{% else %}      own = log2({32'd0, significand_of(magnitude)});
{% endif %}      normal = (significand_of(magnitude) << (23 - own)) + 32'd{{ addend }}; // 1 to 2, in units of 2^-23
      scale_exponent = unit_of(magnitude) + own + $signed(normal >> 23) - 1{% if not divides %} - {{ emax }}{% endif %};
      if (largest == 32'd0) scale_exponent = -126 - {{ emax }};
{% if divides %}      else if (magnitude == 32'd0) scale_exponent = -{{ largest_scale }};
{% endif %}    end
  endfunction
{% endif %}
{% endif %}  // The code of the scale of a block: its exponent plus 127.
{% if keeps_special %}  // NaN and Inf do not count.
{% elif renormalizes %}  // The code is one more if a finite block has a number that is rounded beyond the largest element; the most negative element is none.
{% elif fixed_steps %}  // A NaN or Inf gives NAN_SCALE.
{% else %}  // A NaN or Inf among the elements, or a scale beyond 2^{{ largest_scale }}, gives NAN_SCALE. A scale below 2^-{{ largest_scale }} becomes this one.
{% endif %}  function automatic logic [7:0] block_scale(input logic [32*BLOCK_SIZE-1:0] x);
    logic [31:0] largest;
{% if renormalizes %}    int i;
    logic overflows;
    logic [ELEMENT_BITS-1:0] code;
{% elif not fixed_steps %}    int exponent, biased;
{% endif %}    begin
      largest = largest_magnitude(x);
{% if renormalizes %}      overflows = 1'b0;
      for (i = 0; i < BLOCK_SIZE; i = i + 1) begin
        code = encode_scaled(x[32*i +: 32], largest[30:23], OWN_ROUNDING, 32'd0);
        overflows = overflows || (!x[32*i + 31] && code[ELEMENT_BITS-1]);
      end
      block_scale = largest[30:23] + {7'd0, overflows && largest < INFINITY};
{% elif fixed_steps %}      block_scale = largest[30:23];
{% else %}{% if flush_inputs and not rms %}      if (largest < SMALLEST_NORMAL) largest = 32'd0;
{% endif %}      exponent = scale_exponent({% if rms %}x, {% endif %}largest);
      biased = (exponent < -{{ largest_scale }}) ? 127 - {{ largest_scale }} : exponent + 127;
      block_scale = (largest >= INFINITY || exponent > {{ largest_scale }}) ? NAN_SCALE : biased[7:0];
{% endif %}    end
  endfunction
{% if shifts %}
  // The shift of a sub-block with this largest magnitude, in a block with this scale.
  function automatic logic [SHIFT_BITS-1:0] shift_of(input logic [7:0] scale, input logic [31:0] largest);
    logic [7:0] below;
    begin
      below = scale - largest[30:23];
      shift_of = (scale == NAN_SCALE) ? {{ shift_bits }}'d0 : (below > 8'd{{ largest_shift }}) ? {{ shift_bits }}'d{{ largest_shift }} : below[SHIFT_BITS-1:0];
    end
  endfunction

  // The shifts of a block with this scale, of sub-block 0 in the lowest bits.
  function automatic logic [SHIFT_BITS*SUB_BLOCKS-1:0] shifts_of(input logic [32*BLOCK_SIZE-1:0] x, input logic [7:0] scale);
    int i;
    logic [31:0] largest;
    begin
      largest = 32'd0;
      shifts_of = '0;
      for (i = 0; i < BLOCK_SIZE; i = i + 1) begin
        largest = larger((i % SUB_BLOCK_SIZE == 0) ? 32'd0 : largest, x[32*i +: 32]);
        shifts_of[SHIFT_BITS*(i/SUB_BLOCK_SIZE) +: SHIFT_BITS] = shift_of(scale, largest);
      end
    end
  endfunction
{% endif %}
  // The code of an element in a block with this scale{% if shifts %} and this shift{% endif %}. Larger elements: see element_code; zero keeps its sign where codes have a -0.{% if renormalizes %}
  // In a block with a NaN or Inf, whose scale is NAN_SCALE, Inf counts as 2^128 and NaN as 1.5 * 2^128.{% else %} In a
  // block that is NaN the code is 0.{% endif %}{% if flush_inputs %} Subnormal float32 numbers count as zeros.{% endif %}{% if flush_blocks %} `flush`: the block has float32 subnormals and zeros alone, and becomes zeros.{% endif %}{% if keeps_special %} NaN and Inf have no code: the
  // caller keeps them.{% endif %}
  function automatic logic [ELEMENT_BITS-1:0] encode_scaled(input logic [31:0] x, input logic [7:0] scale, {% if shifts %}input logic [SHIFT_BITS-1:0] shift,
                                                            {% endif %}{% if flush_blocks %}input logic flush, {% endif %}input logic [3:0] rounding, input logic [31:0] draw);
    int exponent;
    logic [31:0] magnitude, limit{% if not fixed_steps %}, top{% endif %};
    begin
      exponent = $signed({24'd0, scale}) - 127{% if shifts %} - $signed({{ "{" }}{{ 32 - shift_bits }}'d0, shift}){% endif %};
      magnitude = {1'b0, x[30:0]};
{% if flush_inputs %}      if (magnitude < SMALLEST_NORMAL) magnitude = 32'd0;
{% endif %}{% if renormalizes %}      if (magnitude > INFINITY) magnitude = NAN;
{% endif %}      limit = LARGEST_CODE{% if renormalizes %} + 32'd1{% endif %};
{% if not fixed_steps %}      // The largest number below 2^128 of a block that has larger ones.
      top = ((128 - exponent - EMIN) << MANTISSA_BITS) + 32'h{{ top_fraction }};
      if ({{ emax }} + exponent > 127 && limit > top) limit = top;
{% endif %}{% if flush_blocks %}      if (flush) magnitude = 32'd0;
{% endif %}      encode_scaled = {% if not renormalizes %}(scale == NAN_SCALE{% if keeps_special %} || magnitude >= INFINITY{% endif %}) ? {{ bits }}'d0 : {% endif %}element_code(magnitude, x[31], exponent, limit, rounding, draw);
    end
  endfunction

  // The float32 of an element: element * 2^(scale - 127{% if shifts %} - shift{% endif %}); NaN with the scale NAN_SCALE. A number with too many bits for float32 is cut off
  // toward zero; a number of 2^128 or more is Inf.
  function automatic logic [31:0] decode_scaled(input logic [ELEMENT_BITS-1:0] code, input logic [7:0] scale{% if shifts %},
                                                input logic [SHIFT_BITS-1:0] shift{% endif %});
    decode_scaled = (scale == NAN_SCALE{% if renormalizes %} && (code[ELEMENT_BITS-1] ? -code : code) > {{ bits }}'h{{ smallest_normal }}{% endif %}) ? NAN
        : scaled_element(code, $signed({24'd0, scale}) - 127{% if shifts %} - $signed({{ "{" }}{{ 32 - shift_bits }}'d0, shift}){% endif %});
  endfunction
{% endif %}
