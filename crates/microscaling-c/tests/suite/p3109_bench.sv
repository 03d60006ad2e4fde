// Reads a case a line, and writes a result a line: the code, and its number.
module bench;
  import model_pkg::*;
`ifdef DPI
  import model_dpi_pkg::*;
`endif
  logic [31:0] x, value;
  logic [3:0] rounding;
  logic [1:0] saturation;
  logic [4:0] random_bits;
  logic [30:0] random;
  // What is read; a simulator may not see that $fscanf changes a signal.
  logic [31:0] read_x;
  logic [3:0] read_rounding;
  logic [1:0] read_saturation;
  logic [4:0] read_random_bits;
  logic [30:0] read_random;
  logic [BITS-1:0] code;
  integer in, out, got;

  model_project project_ (.x(x), .rounding(rounding), .saturation(saturation), .random_bits(random_bits), .random(random), .code(code));
  model_decode decode_ (.code(code), .x(value));

  initial begin
    in = $fopen("cases.hex", "r");
    out = $fopen("results.hex", "w");
    got = $fscanf(in, "%h %h %h %h %h\n", read_x, read_rounding, read_saturation, read_random_bits, read_random);
    while (got == 5) begin
      x = read_x;
      rounding = read_rounding;
      saturation = read_saturation;
      random_bits = read_random_bits;
      random = read_random;
      #1;
`ifdef DPI
      $fwrite(out, "%h %h\n", model_dpi_project(x, {28'd0, rounding}, {30'd0, saturation}, {27'd0, random_bits}, {1'b0, random}),
              model_dpi_decode(model_dpi_project(x, {28'd0, rounding}, {30'd0, saturation}, {27'd0, random_bits}, {1'b0, random})));
`else
      $fwrite(out, "%h %h\n", code, value);
`endif
      got = $fscanf(in, "%h %h %h %h %h\n", read_x, read_rounding, read_saturation, read_random_bits, read_random);
    end
    $fclose(out);
    $finish;
  end
endmodule
