// Reads a case a line, and writes a result a line.
module bench;
  import model_pkg::*;
`ifdef DPI
  import model_dpi_pkg::*;
  bit [32*BLOCK_SIZE-1:0] wide_codes, wide_values;
  int unsigned wide_scale;
`ifdef SHIFTS
  bit [32*SUB_BLOCKS-1:0] wide_shifts;
`endif
`endif
  logic [32*BLOCK_SIZE-1:0] x, draws, values;
  logic [ELEMENT_BITS*BLOCK_SIZE-1:0] codes;
  logic [SCALE_BITS-1:0] scale;
  logic [31:0] tensor_scale;
  logic [3:0] rounding;
  // What is read; a simulator may not see that $fscanf changes a signal.
  logic [32*BLOCK_SIZE-1:0] read_x, read_draws;
  logic [31:0] read_tensor_scale;
  logic [3:0] read_rounding;
  integer in, out, got, i;
`ifdef SHIFTS
  logic [SHIFT_BITS*SUB_BLOCKS-1:0] shifts;
`endif

  model_quantize_block quantize_block (
`ifdef TENSOR
      .tensor_scale(tensor_scale),
`endif
`ifdef SHIFTS
      .shifts(shifts),
`endif
      .x(x), .rounding(rounding), .draws(draws), .scale(scale), .codes(codes));
  model_dequantize_block dequantize_block (
`ifdef TENSOR
      .tensor_scale(tensor_scale),
`endif
`ifdef SHIFTS
      .shifts(shifts),
`endif
      .scale(scale), .codes(codes), .values(values));

  initial begin
    in = $fopen("cases.hex", "r");
    out = $fopen("results.hex", "w");
    got = $fscanf(in, "%h %h %h %h\n", read_x, read_draws, read_rounding, read_tensor_scale);
    while (got == 4) begin
      x = read_x;
      draws = read_draws;
      rounding = read_rounding;
      tensor_scale = read_tensor_scale;
      #1;
`ifdef DPI
      // The same results by the C functions.
      wide_scale = model_dpi_quantize_block(x, BLOCK_SIZE,
`ifdef TENSOR
          tensor_scale,
`endif
          {28'd0, rounding}, draws,
`ifdef SHIFTS
          wide_shifts,
`endif
          wide_codes);
      model_dpi_dequantize_block(wide_scale,
`ifdef TENSOR
          tensor_scale,
`endif
`ifdef SHIFTS
          wide_shifts,
`endif
          wide_codes, BLOCK_SIZE, wide_values);
      $fwrite(out, "%h", wide_scale);
      for (i = 0; i < BLOCK_SIZE; i = i + 1) begin
`ifdef SHIFTS
        $fwrite(out, " %h", wide_shifts[32*(i/SUB_BLOCK_SIZE) +: 32]);
`else
        $fwrite(out, " 0");
`endif
        $fwrite(out, " %h %h", wide_codes[32*i +: 32], wide_values[32*i +: 32]);
      end
`else
      $fwrite(out, "%h", scale);
      for (i = 0; i < BLOCK_SIZE; i = i + 1) begin
`ifdef SHIFTS
        $fwrite(out, " %h", shifts[SHIFT_BITS*(i/SUB_BLOCK_SIZE) +: SHIFT_BITS]);
`else
        $fwrite(out, " 0");
`endif
        $fwrite(out, " %h %h", codes[ELEMENT_BITS*i +: ELEMENT_BITS], values[32*i +: 32]);
      end
`endif
      $fwrite(out, "\n");
      got = $fscanf(in, "%h %h %h %h\n", read_x, read_draws, read_rounding, read_tensor_scale);
    end
    $fclose(out);
    $finish;
  end
endmodule
