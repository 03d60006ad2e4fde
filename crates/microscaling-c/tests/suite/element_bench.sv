// Reads a case a line, and writes a result a line: the code, and its number.
module bench;
  import model_pkg::*;
`ifdef DPI
  import model_dpi_pkg::*;
`endif
  logic [31:0] x, draw, value;
  logic [3:0] rounding;
  // What is read; a simulator may not see that $fscanf changes a signal.
  logic [31:0] read_x, read_draw;
  logic [3:0] read_rounding;
  logic [ELEMENT_BITS-1:0] code;
  integer in, out, got;

  model_encode_element encode (.x(x), .rounding(rounding), .draw(draw), .code(code));
  model_decode_element decode (.code(code), .x(value));

  initial begin
    in = $fopen("cases.hex", "r");
    out = $fopen("results.hex", "w");
    got = $fscanf(in, "%h %h %h\n", read_x, read_rounding, read_draw);
    while (got == 3) begin
      x = read_x;
      rounding = read_rounding;
      draw = read_draw;
      #1;
`ifdef DPI
      $fwrite(out, "%h %h\n", model_dpi_encode_element(x, {28'd0, rounding}, draw),
              model_dpi_decode_element(model_dpi_encode_element(x, {28'd0, rounding}, draw)));
`else
      $fwrite(out, "%h %h\n", code, value);
`endif
      got = $fscanf(in, "%h %h %h\n", read_x, read_rounding, read_draw);
    end
    $fclose(out);
    $finish;
  end
endmodule
