from clawd.learner.process import main

raise SystemExit(main())
