"""What a model's text means: content, reasoning and tool calls, as it comes.

The text of a reply goes through a parser of its model's family (`families.py`) piece by piece; what comes out is the
same however the text was cut into pieces. Guarantees
* No reply is an error. What can't be read as a call stays content, as text, up to the point where a call has begun: its
  name and the beginning of its arguments have then been told already, so broken arguments are told as they stand.
* Text that is neither reasoning nor a call passes unchanged, but for the white space around those two.

transformers' response parsing would be the ready-made alternative. It is not used: it needs transformers in the server
(an optional dependency here, two seconds to import), a field it can't parse raises, and it tells a call only when it is
complete, where clients expect the arguments while they are written.
"""
