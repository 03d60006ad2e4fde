  // A code from its magnitude and its sign.{% if fixed %} Two's complement.{% elif unsigned %} No code has a sign: the magnitude of a negative number is 0.{% elif not negative_zero %} There is no -0.{% else %} Zero keeps its sign.{% endif %}
  function automatic logic [ELEMENT_BITS-1:0] signed_code(input logic [31:0] magnitude, input logic negative);
    logic [31:0] code;
    begin
{% if fixed %}      code = negative ? -magnitude : magnitude;
{% elif unsigned %}      code = magnitude;
{% elif not negative_zero %}      code = (negative && magnitude != 32'd0) ? magnitude | 32'h{{ sign }} : magnitude;
{% else %}      code = negative ? magnitude | 32'h{{ sign }} : magnitude;
{% endif %}      signed_code = code[ELEMENT_BITS-1:0];
    end
  endfunction

  // The code of +-magnitude / 2^scale, a finite number. `limit` is the code of the largest number: {% if overflow_text == "saturate" %}larger ones saturate{% elif overflow_text == "nan" %}larger ones become NaN{% elif overflow_text == "infinity" %}larger ones become {% if beyond_positive %}Inf, or NaN where no
  // code is Inf,{% else %}this one{% endif %} by the direction of rounding{% else %}larger ones become this one{% endif %}.{% if unsigned %} Numbers below 0 become {% if beyond_negative %}NaN, unless they are rounded to 0{% else %}0{% endif %}.{% endif %}{% if flush_outputs %}
  // A subnormal element becomes zero, after rounding.{% endif %}
  function automatic logic [ELEMENT_BITS-1:0] element_code(input logic [31:0] magnitude, input logic negative, input int scale,
                                                           input logic [31:0] limit, input logic [3:0] rounding, input logic [31:0] draw);
    logic [31:0] code, most;
    logic [3:0] mode;
{% if by_direction %}    logic stays;
{% endif %}    begin
      mode = {% if own_rounding %}OWN_ROUNDING{% else %}rounding{% endif %};
      code = magnitude_code(magnitude, negative, scale, MANTISSA_BITS, EMIN, mode, draw);
{% if flush_outputs %}      if (code < 32'h{{ smallest_normal }}) code = 32'd0;
{% endif %}      most = {% if unsigned %}negative ? 32'd0 : limit{% else %}limit{% endif %};
      element_code = signed_code((code > most) ? most : code, negative);
{% if by_direction %}      stays = mode == TOWARD_ZERO || (mode == DOWNWARD && !negative) || (mode == UPWARD && negative){% if unsigned %} || (mode == TO_ODD && !negative){% endif %};
{% endif %}{% if beyond_positive %}      if (code > most && !negative{% if by_direction %} && !stays{% endif %}) element_code = {{ bits }}'h{{ beyond_positive }};
{% endif %}{% if beyond_negative %}      if (code > most && negative{% if by_direction %} && !stays{% endif %}) element_code = {{ bits }}'h{{ beyond_negative }};
{% endif %}    end
  endfunction

  // The float32 of an element's code, times 2^scale.{% if specials == "ieee" %} Codes with all bits of the exponent field are +-Inf, or NaN where mantissa bits
  // are set.{% elif specials == "nan" %} The largest magnitude code is NaN, with either sign.{% elif specials == "nan_inf" %} The largest magnitude code is NaN, the one before Inf.{% elif specials == "fnuz" %} The code of the sign alone is NaN.{% elif specials == "extended" %} The code of the sign alone is NaN, the largest magnitude
  // code Inf.{% else %} Every code is a number.{% endif %}
  function automatic logic [31:0] scaled_element(input logic [ELEMENT_BITS-1:0] code, input int scale);
    logic negative;
    logic [31:0] wide, magnitude;
    begin
      negative = {% if unsigned %}1'b0{% else %}code[ELEMENT_BITS-1]{% endif %};
      wide = {{ "{" }}{% if bits < 32 %}{{ 32 - bits }}'d0, {% endif %}code};
{% if fixed %}      magnitude = (negative ? -wide : wide) & 32'h{{ mask }};
      scaled_element = float32(magnitude, EMIN - MANTISSA_BITS + scale) | {negative, 31'd0};
{% else %}      magnitude = wide & 32'h{{ sign_less }};
      scaled_element = magnitude_of(magnitude, scale, MANTISSA_BITS, EMIN) | {negative, 31'd0};
{% endif %}{% if specials in ["ieee", "nan_inf", "extended"] %}      if (magnitude > LARGEST_CODE) begin
        scaled_element = (magnitude == LARGEST_CODE + 32'd1) ? INFINITY | {negative, 31'd0} : NAN;
      end
{% elif specials == "nan" %}      if (magnitude > LARGEST_CODE) scaled_element = NAN;
{% endif %}{% if specials in ["fnuz", "extended"] %}      if (negative && magnitude == 32'd0) scaled_element = NAN;
{% endif %}    end
  endfunction

  // The float32 of an element's code, without any scale: exact.
  function automatic logic [31:0] decode_element(input logic [ELEMENT_BITS-1:0] code);
    decode_element = scaled_element(code, 0);
  endfunction

  // The code of an Inf or NaN that is an element.{% if not nan_code %} No code is NaN: NaN gives 0.{% endif %}
  function automatic logic [ELEMENT_BITS-1:0] special_code(input logic [31:0] x);
    special_code = (x[30:0] > INFINITY[30:0]) ? {% if nan_code %}NAN_CODE{% else %}{{ bits }}'d0{% endif %}
        : x[31] ? {{ bits }}'h{{ code_of_negative_infinity }} : {{ bits }}'h{{ code_of_infinity }};
  endfunction

  // The code of a float32, without any scale. {% if overflow_text == "saturate" %}Numbers beyond the largest one, and +-Inf, saturate{% else %}Numbers beyond the largest one: `{{ overflow_text }}`{% endif %}.
  // {% if nan_code %}NaN has the code NAN_CODE.{% else %}No code is NaN: NaN gives 0.{% endif %} {% if unsigned %}-0 gives 0.{% elif fixed or not negative_zero %}-0, and what is rounded to it, give 0.{% else %}Zeros, and what is rounded to zero, keep their sign.{% endif %}{% if flush_inputs %}
  // Subnormal float32 numbers count as zeros.{% endif %}
  function automatic logic [ELEMENT_BITS-1:0] encode_element(input logic [31:0] x, input logic [3:0] rounding,
                                                             input logic [31:0] draw);
    logic [31:0] magnitude;
    begin
      magnitude = {1'b0, x[30:0]};
{% if flush_inputs %}      if (magnitude < SMALLEST_NORMAL) magnitude = 32'd0;
{% endif %}      encode_element = (magnitude >= INFINITY) ? special_code(x) : element_code(magnitude, x[31], 0, LARGEST_CODE, rounding, draw);
    end
  endfunction
