"""The plots of a report, each a pure function from facts to what plotly draws. None of them imports it."""
